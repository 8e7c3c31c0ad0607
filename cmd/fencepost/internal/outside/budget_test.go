package outside

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// Several watchers that always want a request get the same share of the budget, and together no
// more than it has.
func TestBudgetIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watchers, perMinute, minutes = 5, 12, 50
		b := NewBudget(perMinute, clock.Go())
		ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute-time.Second)
		defer cancel()
		var all sync.WaitGroup
		var got [watchers]int
		for i := range got {
			all.Go(func() {
				for b.wait(ctx) == nil {
					got[i]++
				}
			})
		}
		all.Wait()
		total := 0
		for _, n := range got {
			if total += n; n < perMinute*minutes/watchers-perMinute/2 { // the first to come has the whole first minute
				t.Errorf("shares %v", got)
			}
		}
		if total != perMinute*minutes || b.Spent() != uint64(total) {
			t.Errorf("%d requests, %d spent", total, b.Spent())
		}
	})
}
