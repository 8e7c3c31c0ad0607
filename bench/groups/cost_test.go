package groups

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/store/faultstore"
)

// The steady state costs the same, whatever the number of partitions is.
func TestSteady(t *testing.T) {
	for _, n := range []int{10, 1000, size(100_000, 2000)} {
		inWorld(t, n, func(w *world) {
			w.found()
			all := w.workers(3)
			w.owned(3*time.Minute, 1, all...)
			time.Sleep(3 * time.Minute)
			order := w.organisers(all)
			w.forget()
			const minutes = 10
			time.Sleep(minutes * time.Minute)
			w.mu.Lock()
			counts := w.requests
			w.mu.Unlock()
			for rank, x := range order {
				who := []string{"the organiser", "its deputy", "another worker"}[rank]
				lists := 1.2 // once a minute, and a little that is random
				if rank < 2 {
					lists = 10
				}
				for _, k := range []struct {
					kind faultstore.Kind
					goal float64
				}{{faultstore.Put, 10}, {faultstore.List, lists}, {faultstore.Get, 30}} {
					add(t, result.Row{Name: fmt.Sprintf("steady state, %s partitions, %s: %ss a minute", result.Number(float64(n)), who, k.kind), Value: float64(counts[x.name][k.kind]) / minutes, Goal: k.goal, Ratio: true})
				}
			}
			w.end(all...)
		})
	}
}

// A worker joins: few partitions move.
func TestJoin(t *testing.T) {
	workers, n := size(100, 20), size(10_000, 400)
	inWorld(t, n, func(w *world) {
		w.found()
		all := w.workers(workers)
		w.owned(3*time.Minute, 1, all...)
		time.Sleep(2 * time.Minute)
		before := w.newest()
		w.forget()
		all = append(all, w.worker("next"))
		took := w.owned(time.Minute, 1, all...)
		time.Sleep(time.Minute)
		moved := 0
		for _, m := range w.moves {
			moved += m
		}
		most := (n + workers) / (workers + 1)
		add(t,
			result.Row{Name: fmt.Sprintf("a worker joins %d that share %s: partitions that move", workers, result.Number(float64(n))), Value: float64(moved), Goal: float64(most), Ratio: true, Note: fmt.Sprintf("shared after %.1f s", took.Seconds())},
			result.Row{Name: "a worker joins: assignments until shares differ by one at most", Value: float64(w.newest() - before), Goal: 2, Ratio: true},
		)
		w.end(all...)
	})
}

// Workers are restarted one after the other, in good order.
func TestRollingRestart(t *testing.T) {
	workers, n := 10, size(1000, 100)
	inWorld(t, n, func(w *world) {
		w.found()
		all := w.workers(workers)
		w.owned(3*time.Minute, 1, all...)
		time.Sleep(time.Minute)
		w.forget()
		for i := range all {
			all[i].stop()
			all[i] = w.worker(fmt.Sprint("new", i))
			time.Sleep(30 * time.Second)
		}
		w.owned(time.Minute, 1, all...)
		q := func(q float64) float64 { return result.Quantile(w.gaps, q).Seconds() }
		what := fmt.Sprintf("rolling restart of %d workers, %s partitions", workers, result.Number(float64(n)))
		sum := 0
		for _, m := range w.moves {
			sum += m
		}
		add(t,
			result.Row{Name: what + ": seconds without an owner, p50", Value: q(0.5), Goal: 0.5, Ratio: true},
			result.Row{Name: what + ": p99", Value: q(0.99), Goal: 1.5, Ratio: true, Note: fmt.Sprintf("longest %.2f s, of %d", q(1), len(w.gaps))},
			// From the one that stops to others, and from others to the one that starts. A partition that moved away
			// may move once more when a later worker stops: its owner is restarted as well.
			result.Row{Name: what + ": moves of a partition, on average", Value: float64(sum) / float64(n), Goal: 2, Ratio: true},
			result.Row{Name: what + ": moves of a partition, at most", Value: float64(slices.Max(w.moves)), Goal: 2, Ratio: true},
		)
		w.end(all...)
	})
}
