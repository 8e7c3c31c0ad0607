package group_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store/faultstore"
)

// Whoever has waited for longest is next, whoever came first.
func TestTurnsGoByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := group.NewTurns(2)
		if turns.Take(t.Context(), 0, 0) != nil || turns.Take(t.Context(), 1, 0) != nil {
			t.Fatal("two may open, and one does not")
		}
		var order []int
		var all sync.WaitGroup
		gone, leave := context.WithCancel(t.Context())
		for i, since := range []clock.Instant{50, -7, 30, 30, 10, -5} {
			ctx := t.Context()
			if i == 1 {
				ctx = gone
			}
			all.Go(func() {
				if turns.Take(ctx, i, since) == nil {
					order = append(order, i)
				} else if i != 1 {
					t.Errorf("%d has no turn", i)
				}
			})
			synctest.Wait()
		}
		if len(order) > 0 {
			t.Errorf("%v have a turn, beside the two that do", order)
		}
		leave()
		for range 5 {
			synctest.Wait()
			turns.Give()
		}
		all.Wait()
		if !slices.Equal(order, []int{5, 4, 2, 3, 0}) {
			t.Errorf("the order is %v", order)
		}
		// One that gives up just when it has its turn passes it on.
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			go turns.Give()
			if turns.Take(ctx, 9, 0) != nil {
				if err := turns.Take(t.Context(), 9, 0); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
	})
}

// Two workers crash 5 s apart. The store is slow, so the logs of the first one are not all open yet when those of
// the second one come. Two are opened at once. Those of the first one come first.
func TestOpensGoByTheTimeWithoutAnOwner(t *testing.T) {
	inFleet(t, 100, func(f *fleet) {
		var mu sync.Mutex
		opening, most := map[int]bool{}, 0
		var order []int
		owner := map[int]string{}
		f.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			var p int
			if _, err := fmt.Sscanf(op.Key, "partition/%06d/", &p); err != nil || op.Client != "c" {
				return faultstore.Fault{}
			}
			mu.Lock()
			defer mu.Unlock()
			if owner[p] != "c" && !opening[p] {
				opening[p] = true
				order = append(order, p)
				// A moment later the work on the log whose turn is over has begun.
				time.AfterFunc(time.Millisecond, func() {
					mu.Lock()
					defer mu.Unlock()
					most = max(most, len(opening))
				})
			}
			return faultstore.Fault{Delay: 400 * time.Millisecond}
		})
		join := func(name string) *hand {
			ctx, cancel := context.WithCancelCause(context.Background())
			h := &hand{st: f.faulty.Client(name), cancel: cancel, ended: make(chan error, 1)}
			o := f.options(name)
			o.Opens, o.Group.Weight = 2, 1
			if name == "c" {
				o.Group.Weight = 8 // so b gets little of what a had, before it is found dead
			}
			go func() {
				h.ended <- group.Run(ctx, h.st, o, func(ctx context.Context, s *group.Session) error {
					mu.Lock()
					owner[s.Partition.Number()] = name
					delete(opening, s.Partition.Number())
					mu.Unlock()
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			return h
		}
		c := join("c")
		time.Sleep(5 * time.Minute)
		a, b := join("a"), join("b")
		time.Sleep(time.Minute)
		mu.Lock()
		was := map[string][]int{}
		for p := range f.n {
			was[owner[p]] = append(was[owner[p]], p)
		}
		order, most = nil, 0
		mu.Unlock()
		crash := func(h *hand) {
			h.st.Crash()
			h.cancel(errStop)
		}
		crash(a)
		time.Sleep(5 * time.Second)
		crash(b)
		time.Sleep(2 * time.Minute)
		<-a.ended
		<-b.ended
		mu.Lock()
		f.Logf("a had %v, b had %v; the order is %v, and at most %d were opened at once", was["a"], was["b"], order, most)
		if most != 2 {
			f.Errorf("%d were opened at once", most)
		}
		early := slices.IndexFunc(order, func(p int) bool { return slices.Contains(was["b"], p) })
		if len(order) != 20 || early < 9 {
			f.Errorf("the order is %v; one of b's comes as number %d", order, early)
		}
		mu.Unlock()
		f.stop(c)
	})
}

// A partition that was idle for longer has an earlier instant: see group.Partition.Idle.
func TestIdleCountsFromTheLastOwnersEnd(t *testing.T) {
	inFleet(t, 2, func(f *fleet) {
		var mu sync.Mutex
		idle := map[string]time.Duration{}
		fail := true
		join := func(name string) *hand {
			ctx, cancel := context.WithCancelCause(context.Background())
			h := &hand{st: f.faulty.Client(name), cancel: cancel, ended: make(chan error, 1)}
			o := f.options(name)
			go func() {
				g, err := group.Join(ctx, h.st, o.Group)
				if err != nil {
					h.ended <- err
					return
				}
				h.ended <- g.Run(ctx, func(ctx context.Context, p *group.Partition) error {
					mu.Lock()
					idle[name] = max(idle[name], p.Idle())
					failed := fail && name == "b"
					fail = fail && !failed
					mu.Unlock()
					if failed {
						clock.Sleep(ctx, clock.Go(), time.Minute)
						return errStop
					}
					<-ctx.Done()
					return context.Cause(ctx)
				})
			}()
			return h
		}
		a := join("a")
		time.Sleep(time.Minute)
		b := join("b")
		time.Sleep(3 * time.Minute)
		a.st.Crash()
		a.cancel(errStop)
		<-a.ended
		time.Sleep(time.Minute)
		b.cancel(errStop)
		<-b.ended
		mu.Lock()
		defer mu.Unlock()
		// The hand-over took a moment, the failure a second, and a's partition came when nobody worked on it.
		if idle["a"] > time.Second || idle["b"] > 2*time.Second || idle["b"] == 0 {
			f.Errorf("idle were they for %v", idle)
		}
	})
}
