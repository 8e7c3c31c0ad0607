package leader_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// paged is a store whose listings come in pages of 100 keys, each in 400 ms. One page hangs once, if so wanted.
type paged struct {
	store.Store
	hangs int // page
	hung  bool
}

func (p *paged) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		n := 0
		for info, err := range p.Store.List(ctx, prefix, opts) {
			if n++; n%100 == 1 {
				wait := 400 * time.Millisecond
				if n/100 == p.hangs && !p.hung {
					p.hung, wait = true, time.Hour
				}
				if err := clock.Sleep(ctx, clock.Go(), wait); err != nil {
					yield(store.Info{}, err)
					return
				}
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// TestManyLocks: the time of a request bounds how long a listing stands still, and not how long it takes. A listing
// of many locks takes longer, and would begin again for ever.
func TestManyLocks(t *testing.T) {
	for name, hangs := range map[string]int{"all pages come": -1, "one page hangs": 3} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := memstore.New(nil)
				old, err := leader.New(mem, "lock", &leader.Options{Clock: clock.Go(), MinEpoch: 1000, Identity: "old"})
				if err == nil {
					err = old.Run(t.Context(), func(context.Context, *leader.Term) error { return nil })
				}
				if err != nil {
					t.Fatal(err)
				}
				for i := range 999 { // nobody reads what is in them
					if _, err := mem.Put(t.Context(), key(i+1), []byte("{"), nil); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				e, err := leader.New(&paged{Store: mem, hangs: hangs}, "lock", &leader.Options{Clock: clock.Go(), Identity: "new"})
				if err != nil {
					t.Fatal(err)
				}
				if rec, err := e.Leader(ctx); rec.Epoch != 1000 || rec.Holder != "old" || !errors.Is(err, leader.ErrNoLeader) {
					t.Errorf("%+v, %v", rec, err)
				}
				if err := e.Run(ctx, func(_ context.Context, term *leader.Term) error {
					if term.Epoch() != 1001 {
						t.Errorf("epoch %d", term.Epoch())
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestLeaderSaysWhy: who gives up to wait for a store that fails learns of the failure.
func TestLeaderSaysWhy(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node("a")
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.List, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}}))
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		if _, err := n.Leader(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, faultstore.ErrInjected) {
			w.Error(err)
		}
	})
}
