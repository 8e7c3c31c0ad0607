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

// guard:kube-draw. The epoch of a term is then greater than that of every term before. Without this: A
// leads in epoch 1, and is frozen; B takes the record over, and leads in epoch 1 too; A wakes up, and
// its writes are accepted beside B's.
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
//
// guard:kube-incarnation. Without this check: pod "worker-0" leads in epoch 5, and is cut off; a new
// pod gets the same name, finds a record with this name, and renews it in epoch 5; the old pod comes
// back, and its writes in epoch 5 are accepted while the new pod leads.
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
//
// guard:kube-one-term. Without this check: A leads in epoch 5, and is frozen; B leads in epoch 6, and
// frees the lock; A wakes up in the middle of a renewal, and finds the lock free; client-go goes on
// with A's work, as if nobody had led in between; the work asks for its token again, gets epoch 7, and
// overwrites what B did.
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

// guard:kube-floor. Without this check: the leader of epoch 7 dies; an operator deletes the register;
// the next leader draws epoch 1; every place that has seen epoch 7 refuses its writes.
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
//
// guard:kube-great-epoch. Without this check: somebody writes the register with the greatest number
// there is; A draws it, leads, and is frozen; B draws it too, since no number is greater, and leads; A
// wakes up, and its writes are let in.
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
//
// guard:kube-create. Without this: A finds no record, draws epoch 5, and its create is slow; B draws
// epoch 6, creates the record, and leads; an operator deletes the record; A's create is applied, and A
// leads in epoch 5; every place that has seen epoch 6 refuses A's writes.
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
//
// guard:kube-release. Without this check: A is cut off from the store, and B takes over; A's elector
// gives up, and reads B's record to free it; client-go checks only whether A led when it last knew, so
// A's lock frees B's record; C takes over while B leads.
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
//
// guard:kube-transitions. Without this check: A's elector reads that C's record has lapsed; B takes the
// record over; a health check in A calls Get, so A's lock knows the version of B's record; A's elector
// sends its update, which was made for C's record; it replaces B's record while B leads.
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

// guard:kube-late-token. Without this check: a goroutine of an old term is slow to start; by then this
// process leads again; the old goroutine gets the token of the new term, and writes beside the
// goroutine of the new term.
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
