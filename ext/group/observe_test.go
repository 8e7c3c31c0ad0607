package group_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/store"
)

// tardy is a store in which each request waits first, and that tells no times.
type tardy struct {
	store.Store
	wait time.Duration
}

func (s *tardy) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if err := clock.Sleep(ctx, clock.Go(), s.wait); err != nil {
		return nil, err
	}
	obj, err := s.Store.Get(ctx, key, opts)
	if err == nil {
		obj.Date = time.Time{}
	}
	return obj, err
}

func (s *tardy) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	return func(yield func(store.Info, error) bool) {
		if err := clock.Sleep(ctx, clock.Go(), s.wait); err != nil {
			yield(store.Info{}, err)
			return
		}
		for info, err := range s.Store.List(ctx, prefix, opts) {
			info.Date = time.Time{}
			if !yield(info, err) {
				return
			}
		}
	}
}

// TestSlowLooks: an observer whose requests take long takes nobody that is live for lapsed, and the dead it does.
func TestSlowLooks(t *testing.T) {
	for _, wait := range []time.Duration{0, 5 * time.Second, 25 * time.Second} {
		inWorld(t, 6, func(w *world) {
			all := []*worker{w.worker("a"), w.worker("b"), w.worker("c")}
			w.whole(time.Minute, all...)
			dead, crashed := time.Now().Add(15*time.Minute), make(chan struct{})
			ctx, cancel := context.WithCancel(w.Context())
			defer cancel()
			time.AfterFunc(15*time.Minute, func() {
				for _, x := range all {
					x.crash()
				}
				close(crashed)
			})
			time.AfterFunc(35*time.Minute, cancel)
			lapsed := 0
			for s, err := range group.Observe(ctx, &tardy{w.mem, wait}, &group.Options{Clock: clock.Go()}) {
				if err != nil {
					t.Fatal(err)
				}
				lapsed = 0
				for _, m := range s.Members {
					if m.Lapsed {
						lapsed++
					}
				}
				if lapsed > 0 && time.Now().Before(dead) {
					t.Fatalf("each request takes %v: %+v", wait, s.Members)
				}
				if lapsed == 3 {
					break
				}
			}
			if lapsed != 3 {
				t.Errorf("each request takes %v: %d of 3 dead members have lapsed", wait, lapsed)
			}
			if took := time.Since(dead); took > 2*validity+20*wait {
				t.Errorf("each request takes %v: the last one was seen after %v", wait, took)
			}
			<-crashed
		})
	}
}
