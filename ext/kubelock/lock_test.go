package kubelock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
)

func TestRecordRoundTrip(t *testing.T) {
	ctx, st := t.Context(), faulty()
	l := newLock(t, st, "a", kubelock.Hooks{})
	if _, _, err := l.Get(ctx); !apierrors.IsNotFound(err) || !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("there is no record: %v", err)
	}
	want := record("a", 0)
	want.Strategy, want.PreferredHolder = "OldestEmulationVersion", "b"
	if err := l.Create(ctx, want); err != nil {
		t.Fatal(err)
	}
	check := func() map[string]any {
		t.Helper()
		got, raw, err := l.Get(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// Times come back as the same instants, in seconds.
		if !got.AcquireTime.Equal(&want.AcquireTime) || !got.RenewTime.Equal(&want.RenewTime) {
			t.Errorf("times %v and %v, want %v", got.AcquireTime, got.RenewTime, want.AcquireTime)
		}
		got.AcquireTime, got.RenewTime = want.AcquireTime, want.RenewTime
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("got %+v, want %+v", *got, want)
		}
		body, _, err := store.Read(ctx, st, leaseKey, &store.ReadOptions{Limit: 1 << 20})
		if err != nil || !bytes.Equal(body, raw) {
			t.Errorf("the raw bytes are not the object's: %v\n%s\n%s", err, raw, body)
		}
		var doc map[string]any
		if err := json.Unmarshal(raw, &doc); err != nil {
			t.Fatal(err)
		}
		return doc
	}
	doc := check()

	// A later client-go, or an operator, has added a member.
	doc["someday"] = map[string]any{"deep": []any{"x", 1.0}}
	body, err := document.Encode(leaseKey, doc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Put(ctx, leaseKey, body, nil); err != nil {
		t.Fatal(err)
	}
	check()
	for _, change := range []string{"", "Other"} { // an empty field is written as such
		want.Strategy, want.PreferredHolder = "", change
		if err := l.Update(ctx, want); err != nil {
			t.Fatal(err)
		}
		if now := check(); !reflect.DeepEqual(now["someday"], doc["someday"]) {
			t.Errorf("the unknown member is now %v", now["someday"])
		}
	}
	b := newLock(t, st, "b", kubelock.Hooks{})
	win(t, st, b)
	if state, err := kubelock.Read(ctx, st, name); err != nil || state.Record.HolderIdentity != "b" || state.Record.LeaderTransitions != 1 {
		t.Errorf("%+v, %v", state, err)
	}
	body, _, err = store.Read(ctx, st, leaseKey, &store.ReadOptions{Limit: 1 << 20})
	if err != nil || !strings.Contains(string(body), `"someday"`) {
		t.Errorf("a takeover loses the unknown member: %v %s", err, body)
	}
}

// Two renewals in one second have the same times, and the elector compares bytes.
func TestEachWriteChangesTheBytes(t *testing.T) {
	st := faulty()
	l := newLock(t, st, "a", kubelock.Hooks{})
	win(t, st, l)
	_, first, _ := l.Get(t.Context())
	if err := l.Update(t.Context(), record("a", 0)); err != nil {
		t.Fatal(err)
	}
	if _, second, _ := l.Get(t.Context()); bytes.Equal(first, second) {
		t.Error("a candidate cannot see that the leader has renewed its lease")
	}
}

func TestRefusals(t *testing.T) {
	ctx, st := t.Context(), faulty()
	a, b := newLock(t, st, "a", kubelock.Hooks{}), newLock(t, st, "b", kubelock.Hooks{})
	if err := a.Update(ctx, record("a", 0)); err == nil || !strings.Contains(err.Error(), "call Get or Create first") {
		t.Errorf("Update before Get: %v", err)
	}
	for _, l := range []*kubelock.Lock{a, b} {
		if _, _, err := l.Get(ctx); !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if err := a.Update(ctx, record("a", 0)); !apierrors.IsConflict(err) {
		t.Errorf("Update of a record that is not there: %v", err)
	}
	if err := a.Create(ctx, record("a", 0)); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(ctx, record("b", 0)); !apierrors.IsAlreadyExists(err) || !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("the second Create: %v", err)
	}
	if _, _, err := b.Get(ctx); err != nil {
		t.Fatal(err)
	}
	if err := a.Update(ctx, record("a", 0)); err != nil { // a renews between b's Get and b's Update
		t.Fatal(err)
	}
	if err := b.Update(ctx, record("b", 1)); !apierrors.IsConflict(err) || !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("an Update of a record that has changed since: %v", err)
	}
	if _, err := b.Token(ctx); !errors.Is(err, kubelock.ErrNotHolder) {
		t.Errorf("b's token: %v", err)
	}
	for _, err := range []error{b.Create(ctx, record("a", 0)), b.Create(ctx, record("", 0))} {
		if !errors.Is(err, kubelock.ErrNotHolder) {
			t.Errorf("a record in the name of somebody else: %v", err)
		}
	}
	if epoch(t, st, a) != 1 {
		t.Error("somebody has drawn an epoch")
	}
}

// outcome is one of those of a write: what the fault does, and what the caller may conclude.
var outcomes = []struct {
	name  string
	fault faultstore.Fault
	// applied says whether the write is in the store afterwards.
	applied, unknown, conflict bool
}{
	{name: "lost reply", fault: faultstore.Fault{Err: faultstore.ErrReset}, applied: true, unknown: true},
	{name: "timeout, lands later", fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{}}, applied: true, unknown: true},
	{name: "lost request", fault: faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}, unknown: true},
	{name: "409", fault: faultstore.Fault{Drop: true, Err: faultstore.ErrConflict}, unknown: true},
	{name: "denied", fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}},
	{name: "echo", fault: faultstore.Fault{Err: faultstore.ErrEcho}, applied: true, conflict: true},
}

// Each conditional write has three outcomes. Whatever it was, no token is given out before a
// write was acknowledged, the next attempt works, and epochs rise.
func TestOutcomes(t *testing.T) {
	for _, o := range outcomes {
		for _, c := range []struct {
			name  string
			skip  int // writes of the record that come first
			first bool
			call  func(ctx context.Context, l *kubelock.Lock) error
		}{
			{"create", 0, true, attempt},
			{"create, second write", 1, true, attempt},
			{"take over", 0, false, attempt},
		} {
			t.Run(c.name+"/"+o.name, func(t *testing.T) {
				ctx, st := t.Context(), faulty()
				old := fence.Epoch(0)
				if !c.first {
					old = win(t, st, newLock(t, st, "old", kubelock.Hooks{}))
				}
				a := newLock(t, st.Client("a"), "a", kubelock.Hooks{})
				st.SetHook(faultstore.Script(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: leaseKey, Skip: c.skip, Fault: o.fault}))
				err := c.call(ctx, a)
				if err == nil || errors.Is(err, store.ErrUnknown) != o.unknown {
					t.Errorf("unknown must be %v: %v", o.unknown, err)
				}
				if got := apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err); got != o.conflict {
					t.Errorf("conflict must be %v: %v", o.conflict, err)
				}
				if token, err := a.Token(ctx); !errors.Is(err, kubelock.ErrNotHolder) {
					t.Errorf("a token without an acknowledged write: %v, %v", token, err)
				}
				st.Land(ctx)
				if e := win(t, st, a); e <= old {
					t.Errorf("epoch %d after %d", e, old)
				}
			})
		}
	}
}

func TestOutcomesOfRenewal(t *testing.T) {
	for _, o := range outcomes {
		t.Run(o.name, func(t *testing.T) {
			ctx, st := t.Context(), faulty()
			a := newLock(t, st.Client("a"), "a", kubelock.Hooks{})
			want := win(t, st, a)
			st.SetHook(faultstore.Script(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: leaseKey, Fault: o.fault}))
			err := a.Update(ctx, record("a", 0))
			if err == nil || errors.Is(err, store.ErrUnknown) != o.unknown || apierrors.IsConflict(err) != o.conflict {
				t.Errorf("got %v", err)
			}
			// The elector reads the record then, and goes on. The late request comes first or last.
			if o.fault.Late != nil {
				if err := attempt(ctx, a); err != nil {
					t.Error(err)
				}
				st.Land(ctx)
			}
			if got := win(t, st, a); got != want {
				t.Errorf("a renewal changed the epoch from %d to %d", want, got)
			}
		})
	}
}

func TestOutcomesOfRelease(t *testing.T) {
	for _, o := range outcomes {
		t.Run(o.name, func(t *testing.T) {
			ctx, st := t.Context(), faulty()
			a := newLock(t, st.Client("a"), "a", kubelock.Hooks{})
			win(t, st, a)
			st.SetHook(faultstore.Script(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: leaseKey, Fault: o.fault}))
			err := release(ctx, a)
			if err == nil || errors.Is(err, store.ErrUnknown) != o.unknown || apierrors.IsConflict(err) != o.conflict {
				t.Errorf("got %v", err)
			}
			st.Land(ctx)
			// A second release finds the lock free, or frees it. client-go tries again after a conflict.
			if err := release(ctx, a); err != nil {
				t.Errorf("again: %v", err)
			}
			if state, err := kubelock.Read(ctx, st, name); err != nil || state.Record.HolderIdentity != "" {
				t.Errorf("%+v, %v", state, err)
			}
			a.RecordEvent("stopped leading")
			if e := win(t, st, a); e != 2 {
				t.Errorf("the next epoch is %d", e)
			}
		})
	}
}

// A's request for an epoch is disturbed.
func TestOutcomesOfTheDraw(t *testing.T) {
	for _, o := range outcomes {
		t.Run(o.name, func(t *testing.T) {
			st := faulty()
			old := win(t, st, newLock(t, st, "old", kubelock.Hooks{}))
			a := newLock(t, st.Client("a"), "a", kubelock.Hooks{})
			st.SetHook(faultstore.Script(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: epochKey, Fault: o.fault}))
			if err := attempt(t.Context(), a); err != nil {
				if !errors.Is(err, store.ErrDenied) {
					t.Error(err)
				}
				if _, err := a.Token(t.Context()); !errors.Is(err, kubelock.ErrNotHolder) {
					t.Error(err)
				}
			}
			st.Land(t.Context())
			if e := win(t, st, a); e <= old {
				t.Errorf("epoch %d after %d", e, old)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	st := faulty()
	for says, try := range map[string]func() (*kubelock.Lock, error){
		"the store is nil":        func() (*kubelock.Lock, error) { return kubelock.New(nil, name, nil) },
		"must name a lock":        func() (*kubelock.Lock, error) { return kubelock.New(st, "", nil) },
		`"orders/"; it must name`: func() (*kubelock.Lock, error) { return kubelock.New(st, "orders/", nil) },
		"RequestTimeout is -1s": func() (*kubelock.Lock, error) {
			return kubelock.New(st, name, &kubelock.Options{RequestTimeout: -time.Second})
		},
		"Identity has 600 bytes": func() (*kubelock.Lock, error) {
			return kubelock.New(st, name, &kubelock.Options{Identity: strings.Repeat("x", 600)})
		},
		"the name has 600 bytes; at mo": func() (*kubelock.Lock, error) { return kubelock.New(st, strings.Repeat("x", 600), nil) },
	} {
		if _, err := try(); !errors.Is(err, kubelock.ErrOptions) || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
	a, err := kubelock.New(st, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := kubelock.New(st, name, nil)
	if err != nil || a.Identity() == b.Identity() || a.Identity() == "" || !strings.HasPrefix(a.Describe(), name+" in ") {
		t.Errorf("%v: %q, %q, %q", err, a.Identity(), b.Identity(), a.Describe())
	}
}

// What the store returns may be anything.
func TestForeignObjects(t *testing.T) {
	for body, want := range map[string]error{
		"":                                      fence.ErrCorrupt,
		"null":                                  fence.ErrCorrupt,
		`{"holderIdentity":"x"}`:                fence.ErrCorrupt,
		sum(`{"holderIdentity":"x"}`):           fence.ErrCorrupt,
		sum(`{"format":2,"fencepost":7}`):       fence.ErrFormat,
		sum(`{"format":1}`):                     fence.ErrCorrupt,
		sum(`{"format":1,"fencepost":7}`):       fence.ErrCorrupt,
		sum(`{"format":1,"fencepost":{}}`):      fence.ErrCorrupt,
		sum(`{"format":1,"holderIdentity":{}}`): fence.ErrCorrupt,
		strings.Repeat("x", 64<<10+1):           store.ErrTooLarge,
		sum(`{"format":1,"fencepost":{"epoch":9223372036854775808,"lock":"` + fence.ID{1}.String() + `","nonce":"` + fence.ID{1}.String() + `"}}`): fence.ErrCorrupt,
		sum(`{"format":1,"fencepost":null}`)[1:]: fence.ErrCorrupt,
	} {
		st := faulty()
		if _, err := st.Put(t.Context(), leaseKey, []byte(body), nil); err != nil {
			t.Fatal(err)
		}
		l := newLock(t, st, "a", kubelock.Hooks{})
		if err := attempt(t.Context(), l); !errors.Is(err, want) {
			t.Errorf("%.60q: %v", body, err)
		}
		if _, err := kubelock.Read(t.Context(), st, name); !errors.Is(err, want) {
			t.Errorf("%.60q: %v", body, err)
		}
	}
}

func sum(doc string) string { return string(document.Sum(leaseKey, []byte(doc))) }
