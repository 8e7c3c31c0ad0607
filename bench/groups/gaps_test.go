package groups

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/bench/result"
)

// One of many workers crashes. Another takes its place later.
func TestCrash(t *testing.T) {
	workers, n, crashes := size(100, 10), size(10_000, 100), size(8, 2)
	for _, who := range []string{"another worker", "the organiser", "its deputy"} {
		inWorld(t, n, func(w *world) {
			w.found()
			all := w.workers(workers)
			w.owned(3*time.Minute, 1, all...)
			var gaps []time.Duration
			assignments := uint64(0)
			for i := range crashes {
				// At another time of the cadence each time.
				time.Sleep(time.Minute + time.Duration(i)*validity*2/5/time.Duration(crashes))
				order := w.organisers(all)
				victim := map[string]*worker{"another worker": order[2+i%(len(order)-2)], "the organiser": order[0], "its deputy": order[1]}[who]
				before := w.newest()
				w.forget()
				victim.crash()
				all = slices.DeleteFunc(all, func(x *worker) bool { return x == victim })
				w.owned(3*validity, workers, all...)
				gaps = append(gaps, w.gaps...)
				time.Sleep(2 * validity)
				assignments = max(assignments, w.newest()-before)
				all = append(all, w.worker(fmt.Sprint("next", i)))
				w.owned(time.Minute, 1, all...)
			}
			what := fmt.Sprintf("crash of %s, of %d that share %s partitions", who, workers, result.Number(float64(n)))
			add(t, result.Row{Name: what + ": assignments", Value: float64(assignments), Goal: 1, Ratio: true, Note: "at most"})
			add(t, inValidities(what+", without an owner", gaps, validity, 1.1, 1.3)...)
			w.end(all...)
		})
	}
}

// Many join at once, all freeze for a minute, and all leave.
func TestStorm(t *testing.T) {
	workers, n := size(1000, 40), size(10_000, 400)
	inWorld(t, n, func(w *world) {
		w.found()
		what := fmt.Sprintf("%s workers, %s partitions", result.Number(float64(workers)), result.Number(float64(n)))
		row := func(name string, took time.Duration, from uint64) {
			// One in each Renew is allowed, and one at the beginning and at the end.
			most := 2 + took.Seconds()/(validity*2/5).Seconds()
			add(t,
				result.Row{Name: what + ", " + name + ": validities until everything is owned", Value: took.Seconds() / validity.Seconds(), Goal: 3, Ratio: true},
				result.Row{Name: what + ", " + name + ": assignments", Value: float64(w.newest() - from), Goal: float64(int(most)), Ratio: true},
			)
		}
		all := w.workers(workers)
		row("all join at once", w.owned(5*validity, workers, all...), 0)
		w.owned(10*validity, 1, all...)
		time.Sleep(time.Minute)

		before := w.newest()
		var resume []func()
		for _, x := range all {
			resume = append(resume, x.st.Pause())
		}
		time.Sleep(time.Minute)
		w.forget()
		for _, f := range resume {
			f()
		}
		row("all are frozen for a minute", w.owned(5*validity, workers, all...), before)
		// A heartbeat and the hint take 40 a minute. Beyond that, what each sends must not rise with their number.
		add(t, result.Row{Name: what + ", all are frozen for a minute: requests of each until everything is owned", Value: float64(w.sent()) / float64(workers), Goal: 80, Ratio: true})
		w.owned(10*validity, 1, all...)
		time.Sleep(time.Minute)

		start := time.Now()
		w.end(all...)
		add(t, result.Row{Name: what + ": validities until the last one has left", Value: time.Since(start).Seconds() / validity.Seconds(), Goal: 3, Ratio: true})
		later := w.worker("later")
		add(t, result.Row{Name: what + ", all have left, and one joins: validities until it owns all", Value: w.owned(5*validity, 0, later).Seconds() / validity.Seconds(), Goal: 3, Ratio: true})
		w.end(later)
	})
}

// Workers leave one after the other until one is left, and then that one leaves, too.
func TestScaleDown(t *testing.T) {
	workers, n := size(100, 10), size(10_000, 100)
	inWorld(t, n, func(w *world) {
		w.found()
		what := fmt.Sprintf("%d workers, %s partitions, all leave one by one", workers, result.Number(float64(n)))
		all := w.workers(workers)
		w.owned(3*time.Minute, 1, all...)
		time.Sleep(time.Minute)
		w.forget()
		before := w.newest()
		var left []time.Duration
		for i, x := range all {
			start := time.Now()
			x.stop()
			left = append(left, time.Since(start))
			if i+1 < workers {
				w.owned(validity, 1, all[i+1:]...)
			}
		}
		q := func(q float64) float64 { return result.Quantile(w.gaps, q).Seconds() }
		add(t,
			result.Row{Name: what + ": validities until one has left, at most", Value: slices.Max(left).Seconds() / validity.Seconds(), Goal: 1, Ratio: true, Note: fmt.Sprintf("the last one %.2f", left[workers-1].Seconds()/validity.Seconds())},
			result.Row{Name: what + ": assignments for each", Value: float64(w.newest()-before) / float64(workers), Goal: 2, Ratio: true},
			result.Row{Name: what + ": seconds without an owner, p50", Value: q(0.5), Goal: 0.5, Ratio: true},
			result.Row{Name: what + ": p99", Value: q(0.99), Goal: 1.5, Ratio: true, Note: fmt.Sprintf("longest %.2f s, of %d", q(1), len(w.gaps))},
		)
		later := w.worker("later")
		add(t, result.Row{Name: what + ", and one joins: validities until it owns all", Value: w.owned(5*validity, 0, later).Seconds() / validity.Seconds(), Goal: 3, Ratio: true})
		w.end(later)
	})
}
