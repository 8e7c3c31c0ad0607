package group_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/group"
)

// A partition moves, and its work takes long to end: meanwhile Held says that nobody else works on
// it. When the store is gone, that ends with the session.
func TestHeld(t *testing.T) {
	inWorld(t, 2, func(w *world) {
		var slow, expired atomic.Int32
		a := w.worker("a", func(x *worker) {
			x.work = func(ctx context.Context, p *group.Partition) error {
				if held, left := p.Held(), p.Remaining(); held != left || held <= 0 {
					w.Errorf("it begins with held %v, remaining %v", held, left)
				}
				<-ctx.Done()
				if p.Held() == 0 {
					expired.Add(1)
					return nil
				}
				for range 10 {
					time.Sleep(time.Second)
					if p.Held() < validity/4 || p.Remaining() != 0 {
						w.Errorf("while it ends: held %v, remaining %v", p.Held(), p.Remaining())
					}
				}
				slow.Add(1)
				return nil
			}
		})
		w.whole(time.Minute, a)
		b := w.worker("b")
		w.whole(time.Minute, a, b)
		if slow.Load() != 1 {
			w.Errorf("%d partitions have moved", slow.Load())
		}
		a.st.Pause()
		time.Sleep(time.Minute)
		if expired.Load() != 1 {
			w.Errorf("of the partition that a had, Held is not 0 after its deadline")
		}
		a.crash()
		b.stop()
	})
}
