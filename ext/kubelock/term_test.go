package kubelock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/fencepost/fencepost/ext/kubelock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store/faultstore"
)

func TestEpochsRise(t *testing.T) {
	st := faulty()
	a, b := newLock(t, st, "a", kubelock.Hooks{}), newLock(t, st, "b", kubelock.Hooks{})
	for want := range 6 {
		l := []*kubelock.Lock{a, b}[want%2]
		if e := win(t, st, l); int(e) != want+1 {
			t.Fatalf("epoch %d, want %d", e, want+1)
		}
		if want%3 == 0 {
			if err := release(t.Context(), l); err != nil {
				t.Fatal(err)
			}
		}
		l.RecordEvent("stopped leading")
	}
}

// A new process, or a new pod with the name of the old one, finds its own name in the record.
func TestSameIdentityGetsANewEpoch(t *testing.T) {
	st := faulty()
	old := newLock(t, st, "worker-0", kubelock.Hooks{})
	first := win(t, st, old)
	successor := newLock(t, st, "worker-0", kubelock.Hooks{})
	if e := win(t, st, successor); e <= first {
		t.Errorf("epoch %d after %d", e, first)
	}
	if err := old.Update(t.Context(), record("worker-0", 0)); !apierrors.IsConflict(err) {
		t.Errorf("the old one renews: %v", err)
	}
	if err := attempt(t.Context(), old); !errors.Is(err, kubelock.ErrTermOver) {
		t.Errorf("the old one goes on: %v", err)
	}
}

// client-go may lose the lock and win it again while it renews, without a word to the work.
func TestOneTermHasOneEpoch(t *testing.T) {
	ctx, st := t.Context(), faulty()
	a, b := newLock(t, st, "a", kubelock.Hooks{}), newLock(t, st, "b", kubelock.Hooks{})
	win(t, st, a)
	win(t, st, b)
	if err := release(ctx, b); err != nil {
		t.Fatal(err)
	}
	if err := attempt(ctx, a); !errors.Is(err, kubelock.ErrTermOver) {
		t.Fatalf("a wins again in the same term: %v", err)
	}
	if state, err := kubelock.Read(ctx, st, name); err != nil || state.Record.HolderIdentity != "" || state.Epoch != 2 {
		t.Errorf("%+v, %v", state, err)
	}
	a.RecordEvent("stopped leading")
	if e := win(t, st, a); e != 3 {
		t.Errorf("the new term has epoch %d", e)
	}
}

func TestDeletedObjects(t *testing.T) {
	for _, c := range []struct {
		what    string
		deleted []string
		want    int
	}{
		{"the record", []string{leaseKey}, 3},
		{"the register", []string{epochKey}, 3},
		{"both", []string{leaseKey, epochKey}, 1}, // nothing remembers an epoch
	} {
		t.Run(c.what, func(t *testing.T) {
			st := faulty()
			win(t, st, newLock(t, st, "a", kubelock.Hooks{}))
			win(t, st, newLock(t, st, "b", kubelock.Hooks{}))
			for _, key := range c.deleted {
				del(t, st, key)
			}
			if e := win(t, st, newLock(t, st, "c", kubelock.Hooks{})); int(e) != c.want {
				t.Errorf("epoch %d, want %d", e, c.want)
			}
			state, err := kubelock.Read(t.Context(), st, name)
			if want := map[bool]int{true: 2, false: 0}[c.what == "the register"]; err != nil || state.Record.LeaderTransitions != want {
				t.Errorf("%d transitions, want %d: %v", state.Record.LeaderTransitions, want, err)
			}
		})
	}
}

// No epoch is greater than the greatest number, so two terms would share it.
func TestGreatEpoch(t *testing.T) {
	st := faulty()
	win(t, st, newLock(t, st, "a", kubelock.Hooks{}))
	if _, err := register.Open(t.Context(), st, epochKey, fence.NewToken(1<<62+1<<40), nil); err != nil {
		t.Fatal(err)
	}
	b := newLock(t, st, "b", kubelock.Hooks{})
	if err := attempt(t.Context(), b); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), "delete it") {
		t.Fatalf("a term begins: %v", err)
	}
	del(t, st, epochKey)
	if e := win(t, st, b); e != 2 {
		t.Errorf("the next term has epoch %d", e)
	}
}

// An operator deletes the record while its holder leads. It goes on in its epoch if nobody led in
// between, and else its term is over.
func TestRecordDeletedInATerm(t *testing.T) {
	ctx, st := t.Context(), faulty()
	a, b := newLock(t, st, "a", kubelock.Hooks{}), newLock(t, st, "b", kubelock.Hooks{})
	win(t, st, a)
	del(t, st, leaseKey)
	if err := a.Update(ctx, record("a", 0)); !apierrors.IsConflict(err) {
		t.Errorf("the record is gone: %v", err)
	}
	if e := win(t, st, a); e != 1 {
		t.Errorf("nobody led in between: epoch %d", e)
	}
	del(t, st, leaseKey)
	if e := win(t, st, b); e != 2 {
		t.Errorf("epoch %d", e)
	}
	del(t, st, leaseKey)
	if err := attempt(ctx, a); !errors.Is(err, kubelock.ErrTermOver) {
		t.Errorf("b led in between: %v", err)
	}
}

// A's create is under way while B creates the record, leads, and an operator deletes it.
func TestSlowCreate(t *testing.T) {
	st := faulty()
	a, b := newLock(t, st.Client("a"), "a", kubelock.Hooks{}), newLock(t, st.Client("b"), "b", kubelock.Hooks{})
	var before int
	led := st.BeforeFirst(func(op faultstore.Op) bool {
		return op.Client == "a" && op.Kind == faultstore.Put && op.Key == leaseKey
	}, func(context.Context) {
		before = int(win(t, st, b))
		del(t, st, leaseKey)
	})
	if e := win(t, st, a); !led() || before < 1 || int(e) <= before {
		t.Errorf("epoch %d after %d", e, before)
	}
}

// client-go's release reads the record, and frees it if it believed itself the leader before.
func TestReleaseOfAnothersRecord(t *testing.T) {
	ctx, st := t.Context(), faulty()
	a, b := newLock(t, st, "a", kubelock.Hooks{}), newLock(t, st, "b", kubelock.Hooks{})
	win(t, st, a)
	want := win(t, st, b)
	err := release(ctx, a)
	if !errors.Is(err, kubelock.ErrNotHolder) || apierrors.IsConflict(err) {
		t.Errorf("a frees b's record: %v", err)
	}
	if err := b.Update(ctx, record("b", 1)); err != nil || epoch(t, st, b) != want {
		t.Errorf("b renews: %v", err)
	}
	same := newLock(t, st, "b", kubelock.Hooks{}) // another process with b's name
	if err := release(ctx, same); !errors.Is(err, kubelock.ErrNotHolder) {
		t.Errorf("a namesake frees b's record: %v", err)
	}
}

// Somebody else than the elector calls Get, between the elector's Get and its Update.
func TestForeignGet(t *testing.T) {
	ctx, st := t.Context(), faulty()
	c := newLock(t, st, "c", kubelock.Hooks{})
	win(t, st, c)
	a, b := newLock(t, st, "a", kubelock.Hooks{}), newLock(t, st, "b", kubelock.Hooks{})
	if _, _, err := a.Get(ctx); err != nil { // c's lease has lapsed
		t.Fatal(err)
	}
	win(t, st, b)
	if _, _, err := a.Get(ctx); err != nil { // a health check
		t.Fatal(err)
	}
	if err := a.Update(ctx, record("a", 1)); !apierrors.IsConflict(err) {
		t.Errorf("a replaces a record that its elector has not read: %v", err)
	}
	epoch(t, st, b)
}

func TestTokenEndsWithItsContext(t *testing.T) {
	st := faulty()
	a := newLock(t, st, "a", kubelock.Hooks{})
	old, cancel := context.WithCancel(t.Context())
	win(t, st, a)
	cancel()
	a.RecordEvent("stopped leading")
	if _, err := a.Token(t.Context()); !errors.Is(err, kubelock.ErrNotHolder) {
		t.Errorf("a token between two terms: %v", err)
	}
	win(t, st, a)
	if token, err := a.Token(old); !errors.Is(err, kubelock.ErrNotHolder) || !errors.Is(err, context.Canceled) {
		t.Errorf("the old term's work gets %v, %v", token, err)
	}
}
