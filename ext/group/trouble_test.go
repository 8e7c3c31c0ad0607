package group_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/internal/test"
)

// A partition whose work fails everywhere is tried by three owners, reported, and left.
func TestFailingPartitionIsParked(t *testing.T) {
	inWorld(t, 12, func(w *world) {
		var parked, tries atomic.Int64
		tried := map[string]bool{}
		bad := func(x *worker) {
			x.opts.Hooks.Parked = func(e group.Parking) {
				if e.Partition != 7 {
					w.Errorf("partition %d is reported", e.Partition)
				}
				parked.Add(1)
			}
			x.work = func(ctx context.Context, p *group.Partition) error {
				if p.Number() == 7 {
					tries.Add(1)
					w.mu.Lock()
					tried[x.name] = true
					w.mu.Unlock()
					return errWork
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}
		}
		all := []*worker{w.worker("a", bad), w.worker("b", bad), w.worker("c", bad), w.worker("d", bad)}
		time.Sleep(5 * time.Minute)
		owners := func() int {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(tried)
		}
		if owners() != 3 || parked.Load() != 1 {
			w.Errorf("%d owners tried it, and it was reported %d times", owners(), parked.Load())
		}
		before := tries.Load()
		time.Sleep(30 * time.Minute)
		if n := tries.Load() - before; n < 5 || n > 15 {
			w.Errorf("it was tried %d times in half an hour", n)
		}
		if owners() != 3 {
			w.Errorf("%d owners tried it in the end", owners())
		}
		for s, err := range group.Observe(w.Context(), w.mem, &group.Options{Clock: clock.Go()}) {
			if err != nil || len(s.GivenUp) != 1 || s.GivenUp[0] != 7 {
				w.Errorf("the status is %+v, %v", s, err)
			}
			break
		}
		w.end(all...)
	})
}

// Work that is to begin again does so at the same member, each time with a greater token, and is never taken for work that fails.
func TestAgain(t *testing.T) {
	inWorld(t, 4, func(w *world) {
		var opened []group.Opening
		again := func(x *worker) {
			x.opts.Hooks.Parked = func(e group.Parking) { w.Errorf("%+v", e) }
			x.opts.Hooks.Opened = func(o group.Opening) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if o.Partition == 2 {
					opened = append(opened, o)
				}
			}
			x.opts.Hooks.Closed = func(c group.Closing) {
				if c.Cause == nil && c.Err != nil {
					w.Errorf("%+v", c)
				}
			}
			x.work = func(ctx context.Context, p *group.Partition) error {
				if p.Number() == 2 {
					return fmt.Errorf("a round: %w", group.ErrAgain)
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}
		}
		all := []*worker{w.worker("a", again), w.worker("b", again)}
		time.Sleep(30 * time.Minute)
		w.mu.Lock()
		n := len(opened)
		for i, o := range opened {
			if o.Failures != 0 || i > 0 && o.Token.Epoch() <= opened[i-1].Token.Epoch() {
				w.Errorf("opening %d: %+v", i, o)
			}
		}
		w.mu.Unlock()
		if n < 60 || n > 150 {
			w.Errorf("it began %d times in half an hour", n)
		}
		if s := w.status(); len(s.GivenUp) != 0 {
			w.Errorf("%+v is given up", s.GivenUp)
		}
		w.end(all...)
	})
}

// status is what an observer sees now.
func (w *world) status() (s group.Status) {
	w.Helper()
	for s, err := range group.Observe(w.Context(), w.mem, &group.Options{Clock: clock.Go()}) {
		if err != nil {
			w.Fatal(err)
		}
		return s
	}
	w.Fatal("there is no status")
	return s
}

// A partition whose work ignores its context ends the sessions of three owners. Then nobody owns it, which is
// reported, and the others keep their shares. Retry lets it run again.
func TestHungPartitionIsParked(t *testing.T) {
	inWorld(t, 12, func(w *world) {
		var parked, hangs atomic.Int64
		var mended atomic.Bool
		hold := make(chan struct{})
		bad := func(x *worker) {
			x.opts.StallAfter = 20 * time.Second
			x.opts.Hooks.Parked = func(e group.Parking) {
				if e.Partition != 7 || !e.Unowned {
					w.Errorf("reported is %+v", e)
				}
				parked.Add(1)
			}
			x.work = func(ctx context.Context, p *group.Partition) error {
				if p.Number() == 7 && !mended.Load() {
					hangs.Add(1)
					<-hold
					return nil
				}
				for clock.Sleep(ctx, clock.Go(), 5*time.Second) == nil {
					p.Progress()
				}
				return context.Cause(ctx)
			}
		}
		var all []*worker
		for i := range 6 {
			all = append(all, w.worker(fmt.Sprint("w", i), bad))
		}
		time.Sleep(20 * time.Minute)
		check := func() {
			w.Helper()
			ended := 0
			for _, x := range all {
				x.mu.Lock()
				for _, err := range x.errs {
					if ended++; !errors.Is(err, group.ErrHung) {
						w.Errorf("%s ended with %v", x.name, err)
					}
				}
				x.mu.Unlock()
			}
			s := w.status()
			if ended != 3 || hangs.Load() != 3 || parked.Load() != 1 || !slices.Equal(s.GivenUp, []int{7}) || s.Owners[7] != -1 {
				w.Errorf("%d sessions ended of %d that hung, it was reported %d times, and the status is %+v", ended, hangs.Load(), parked.Load(), s)
			}
			for p, i := range s.Owners {
				if p != 7 && i < 0 {
					w.Errorf("nobody owns %d", p)
				}
			}
		}
		check()
		time.Sleep(time.Duration(test.Of(20, 120)) * time.Minute)
		check()

		mended.Store(true)
		close(hold)
		if _, err := group.Retry(w.Context(), w.mem, []int{12}, &group.Options{Clock: clock.Go()}); !errors.Is(err, group.ErrOptions) {
			w.Errorf("Retry of a partition that there is not: %v", err)
		}
		for _, want := range [][]int{nil, {7}} {
			ask := []int{3}
			if want != nil {
				ask = nil
			}
			if again, err := group.Retry(w.Context(), w.mem, ask, &group.Options{Clock: clock.Go()}); err != nil || !slices.Equal(again, want) {
				w.Errorf("Retry(%v) = %v, %v", ask, again, err)
			}
		}
		w.whole(time.Minute, all...)
		if s := w.status(); len(s.GivenUp) > 0 {
			w.Errorf("given up are %v", s.GivenUp)
		}
		w.end(all...)
	})
}
