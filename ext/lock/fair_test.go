package lock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/store/faultstore"
)

// contention is what n processes see that want one name all the time.
type contention struct {
	handovers []time.Duration // from a release to the next acquisition
	gaps      []int           // how many others had the name between two turns of a process
	reads     float64         // of the busiest process, a minute, beside hand-overs
}

// contend lets n processes acquire a name over and over, each holding it for hold, until each had it rounds times on average.
func contend(w *world, n, rounds int, hold time.Duration) (c contention) {
	var mu sync.Mutex
	var freed time.Time
	turns, done := 0, make(chan struct{})
	last := make([]int, n)
	gets := map[string]int{}
	held := false
	w.faulty.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == faultstore.Get && held { // otherwise it is part of a hand-over
			gets[op.Client]++
		}
	})
	begin := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		p := w.process(name(i))
		wg.Go(func() {
			time.Sleep(rand.N(time.Second))
			mu.Lock()
			last[i] = turns
			mu.Unlock()
			for {
				select {
				case <-done:
					return
				default:
				}
				k, err := p.Acquire(w.Context(), "invoices")
				if err != nil {
					w.Error(err)
					return
				}
				mu.Lock()
				if !freed.IsZero() {
					c.handovers = append(c.handovers, time.Since(freed))
				}
				turns++
				if last[i] > n { // by then the share is known
					c.gaps = append(c.gaps, turns-last[i])
				}
				last[i], held = turns, true
				if turns == n*rounds {
					close(done)
				}
				mu.Unlock()
				time.Sleep(hold)
				mu.Lock()
				freed, held = time.Now(), false
				mu.Unlock()
				if err := k.Release(w.Context()); err != nil {
					w.Error(err)
				}
			}
		})
	}
	<-done
	took := time.Since(begin)
	for _, n := range gets {
		c.reads = max(c.reads, float64(n)/took.Minutes())
	}
	wg.Wait()
	for _, l := range last {
		c.gaps = append(c.gaps, turns-l)
	}
	return c
}

func quantile[T int | time.Duration](all []T, q float64) T {
	slices.Sort(all)
	return all[int(float64(len(all)-1)*q)]
}

// TestFair: 100 that want one name all the time get it in turns.
func TestFair(t *testing.T) {
	const n = 100
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		c := contend(w, n, 10, 10*time.Millisecond)
		t.Logf("handed over p50 %v; turns come after %d (p99), at most %d; GETs a minute %.0f",
			quantile(c.handovers, .5), quantile(c.gaps, .99), quantile(c.gaps, 1), c.reads)
		if p50 := quantile(c.handovers, .5); p50 > 4*28*time.Millisecond {
			t.Errorf("handed over in %v (p50), which is more than four requests", p50)
		}
		if worst := quantile(c.gaps, 1); worst > 3*n {
			t.Errorf("one came after %d others, which is more than three fair shares", worst)
		}
		if c.reads > 150 {
			t.Errorf("%.0f GETs a minute beside hand-overs", c.reads)
		}
	})
}
