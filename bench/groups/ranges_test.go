package groups

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// What S3 serves a second from one range of keys.
const (
	writesPerSecond = 3500
	readsPerSecond  = 5500
)

// ranges is a store that splits its keys into ranges, and answers 503 to what is too much for one.
type ranges struct {
	mu            sync.Mutex
	of            func(key string) int
	writes, reads []*rate.Limiter
	served        int
	refused       int
}

func newRanges(n, partitions int) *ranges {
	r := &ranges{of: func(key string) int {
		var p int
		if _, err := fmt.Sscanf(key, "partition/%d/", &p); err != nil {
			return 0
		}
		return p * n / partitions
	}}
	for range n {
		// The burst is what a tenth of a second allows.
		r.writes = append(r.writes, rate.NewLimiter(writesPerSecond, writesPerSecond/10))
		r.reads = append(r.reads, rate.NewLimiter(readsPerSecond, readsPerSecond/10))
	}
	return r
}

func (r *ranges) hook(op faultstore.Op) faultstore.Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	limit := r.writes
	if op.Kind == faultstore.Get || op.Kind == faultstore.List {
		limit = r.reads
	}
	if !limit[r.of(op.Key)].AllowN(time.Now(), 1) {
		r.refused++
		return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable, Delay: 10 * time.Millisecond}
	}
	r.served++
	return faultstore.Fault{Delay: 14 * time.Millisecond, ReplyDelay: 14 * time.Millisecond}
}

func (r *ranges) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served, r.refused = 0, 0
}

// A group with a log for each of many partitions begins, half of its workers crash, and all start again, on a
// store with one range for all keys, and on one whose ranges were split.
func TestRanges(t *testing.T) {
	workers, n := size(20, 4), size(10_000, 100)
	for _, split := range []int{1, 4} {
		inWorld(t, n, func(w *world) {
			w.found()
			r := newRanges(split, n)
			w.faulty.SetHook(r.hook)
			start := func(name string) *worker {
				return w.start(name, func(ctx context.Context, x *worker) {
					err := group.Run(ctx, x.st, &group.RunOptions{
						Group: &group.Options{Identity: x.name, Clock: clock.Go(), Hooks: group.Hooks{Ended: func(e group.End) {
							if !errors.Is(e.Cause, group.ErrLeft) && !x.st.Crashed() {
								w.mu.Lock()
								x.ends++
								w.mu.Unlock()
							}
						}}},
						Writer: &writer.Options{Clock: clock.Go()},
					}, func(ctx context.Context, s *group.Session) error {
						x.opens(s.Partition.Number())
						defer x.closes(s.Partition.Number())
						<-ctx.Done()
						return context.Cause(ctx)
					})
					if ctx.Err() == nil {
						w.Errorf("RunGroup: %v", err)
					}
				})
			}
			what := fmt.Sprintf("%s logs, %d workers, a store with %d × 3,500 writes and 5,500 reads a second", result.Number(float64(n)), workers, split)
			row := func(name string, took time.Duration, all []*worker) {
				lost := 0
				w.mu.Lock()
				for _, x := range all {
					lost += x.ends
				}
				w.mu.Unlock()
				r.mu.Lock()
				defer r.mu.Unlock()
				add(t,
					result.Row{
						Name: fmt.Sprintf("%s, %s: seconds until all are open", what, name), Value: took.Seconds(), Goal: none,
						Note: fmt.Sprintf("%.1f requests for each log, %.1f %% of all were answered 503", float64(r.served)/float64(n), 100*float64(r.refused)/float64(r.served+r.refused)),
					},
					result.Row{Name: fmt.Sprintf("%s, %s: sessions that were lost", what, name), Value: float64(lost), Goal: 0, Ratio: true},
				)
			}
			var all []*worker
			for i := range workers {
				all = append(all, start(fmt.Sprint("w", i)))
			}
			row("a new group", w.owned(10*time.Minute, 1, all...), all)
			time.Sleep(time.Minute)
			r.reset()
			for _, x := range all[:workers/2] {
				x.crash()
			}
			all = all[workers/2:]
			row("half of the workers crash", w.owned(10*time.Minute, 1, all...), all)
			time.Sleep(time.Minute)
			r.reset()
			w.end(all...)
			all = nil
			for i := range workers {
				all = append(all, start(fmt.Sprint("again", i)))
			}
			row("all stop, and start again", w.owned(10*time.Minute, 1, all...), all)
			w.end(all...)
		})
	}
}
