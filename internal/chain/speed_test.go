package chain

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// late takes the time of one of S3's GETs for each of its own: 14 ms, 45 ms at the 99 %
// quantile.
type late struct {
	store.Store
	next chan time.Duration
}

func newLate(inner store.Store) late {
	l := late{inner, make(chan time.Duration, 1<<14)}
	rng := rand.New(rand.NewPCG(1, 2))
	for range cap(l.next) {
		l.next <- time.Duration(14e6 * math.Exp(0.5*rng.NormFloat64()))
	}
	return l
}

func (l late) Get(ctx context.Context, key string, o *store.GetOptions) (*store.Object, error) {
	select {
	case <-time.After(<-l.next):
	case <-ctx.Done():
		return nil, &store.Error{Op: "get", Key: key, Err: ctx.Err()}
	}
	return l.Store.Get(ctx, key, o)
}

// TestInOrderAtFullSpeed: that objects are checked in order costs next to nothing, whether
// they are small or of some size. In virtual time: when no more objects waited for their
// turn than requests are under way, the same walk took 2.3 times as long as plain
// requests do, as many at once. When small objects could not use free room, those of 200 KiB
// took 1.4 times as long.
func TestInOrderAtFullSpeed(t *testing.T) {
	for _, size := range test.Of([]int{10}, []int{10, 60 << 10, 200 << 10}) {
		synctest.Test(t, func(t *testing.T) {
			inner := memstore.New(nil)
			l := newLog(t, inner).seal(1)
			const objects = 3000
			for range objects {
				l.data(size)
			}
			st := newLate(inner)
			start := time.Now()
			for step, err := range source(st).Walk(t.Context(), frame.Start()) {
				if err != nil {
					t.Fatal(err)
				}
				if step.To.Equal(l.at) {
					break
				}
			}
			took := time.Since(start)
			var plain [DefaultAhead]time.Duration // when each of so many clients is through
			again := newLate(inner)
			for range objects {
				least := 0
				for i := range plain {
					if plain[i] < plain[least] {
						least = i
					}
				}
				plain[least] += <-again.next
			}
			sum := time.Duration(0)
			for _, d := range plain {
				sum = max(sum, d)
			}
			if ratio := took.Seconds() / sum.Seconds(); ratio > 1.15 {
				t.Errorf("%d bytes each: %v, %.2f times as long as plain requests, %v", size, took, ratio, sum)
			}
		})
	}
}
