package member_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test"
)

// all waits until every partition is worked on, and returns how long it took.
func (w *world) all(within time.Duration) time.Duration {
	w.Helper()
	start := w.now
	for {
		sum := 0
		for _, p := range w.procs {
			if !p.crashed {
				sum += len(p.works)
			}
		}
		if sum == w.partitions {
			return w.now - start
		}
		if w.now-start > within {
			w.fail("after %v %d of %d partitions are worked on; the newest assignment is %d", within, sum, w.partitions, w.newest())
		}
		w.run(100 * time.Millisecond)
	}
}

// Many members join at once, all pause for a minute and wake, and all leave.
func TestStorm(t *testing.T) {
	const members = 60
	w := newWorld(t, 1, 300)
	for i := range members {
		w.proc(fmt.Sprint("p", i))
	}
	w.balanced(3 * w.validity)
	t.Logf("%d members joined at once: shared after %v, %d assignments, %d requests", members, w.now, w.newest(), w.requests())
	w.run(time.Minute)
	w.still(time.Minute)

	n, before := w.newest(), w.requests()
	start := w.now
	for _, p := range w.procs {
		p.pause(time.Minute)
	}
	w.run(time.Minute)
	took := w.all(3 * w.validity)
	t.Logf("all woke after a minute: everything is owned again after %v, %d assignments, %d requests", took, w.newest()-n, w.requests()-before)
	// Each joins again, and one or two look through all. If each looked through all, it would be 80 for each, and
	// more with more members.
	if sent := w.requests() - before; sent > 45*members {
		t.Errorf("%d members sent %d requests", members, sent)
	}
	if most := uint64((w.now-start-time.Minute)/(w.validity*2/5)) + 2; w.newest()-n > most {
		t.Errorf("%d assignments in %v; one in each Renew is allowed", w.newest()-n, w.now-start-time.Minute)
	}
	w.balanced(3 * w.validity)
	w.run(time.Minute)

	for _, p := range w.procs {
		p.leave(true)
	}
	w.run(4 * w.validity)
	for _, p := range w.procs {
		if !p.crashed {
			t.Fatalf("%s has not left", p.name)
		}
	}
	// Somebody comes later, and finds everything free.
	w.proc("later")
	took = w.all(3 * w.validity)
	t.Logf("after all had left, one had everything after %v", took)
	if took > w.validity/2 {
		t.Errorf("it took %v", took)
	}
}

// All leave one after the other, down to one member, and then the last one.
func TestAllLeaveOneByOne(t *testing.T) {
	const members = 30
	w := newWorld(t, 1, 300)
	for i := range members {
		w.proc(fmt.Sprint("p", i))
	}
	w.balanced(3 * w.validity)
	w.run(time.Minute)
	w.gaps = nil
	n := w.newest()
	for i, p := range w.procs {
		p.leave(true)
		for start := w.now; !p.crashed; w.run(100 * time.Millisecond) {
			if w.now-start > w.validity {
				w.fail("%s has not left after %v", p.name, w.now-start)
			}
		}
		if i < members-1 {
			w.balanced(w.validity)
		}
	}
	if got := w.newest() - n; got > 2*members {
		t.Errorf("%d assignments for %d that left", got, members)
	}
	slices.Sort(w.gaps)
	t.Logf("%d left one by one: %d assignments; without an owner p99 %v, at most %v", members, w.newest()-n, w.gaps[len(w.gaps)*99/100], w.gaps[len(w.gaps)-1])
	if longest := w.gaps[len(w.gaps)-1]; longest > w.validity {
		t.Errorf("a partition had no owner for %v", longest)
	}
	w.proc("later")
	w.balanced(w.validity)
}

func (w *world) requests() (n int) {
	for _, times := range w.counts {
		n += times
	}
	return n
}

// One of 100 workers crashes: one assignment, and every partition runs again in about a validity.
func TestCrashOfOneInAHundred(t *testing.T) {
	var gaps []time.Duration
	for seed := range uint64(3) {
		w := newWorld(t, seed, 500)
		for i := range 100 {
			w.proc(fmt.Sprint("p", i))
			w.run(time.Duration(w.rng.Int64N(int64(time.Second))))
		}
		w.balanced(4 * w.validity)
		w.run(time.Minute + time.Duration(w.rng.Int64N(int64(w.validity))))
		n := w.newest()
		w.gaps = nil
		w.procs[10+w.rng.IntN(90)].crash()
		w.all(2 * w.validity)
		gaps = append(gaps, w.gaps...)
		w.run(time.Minute)
		if w.newest() != n+1 {
			t.Errorf("seed %d: %d assignments", seed, w.newest()-n)
		}
	}
	slices.Sort(gaps)
	p50, p99 := gaps[len(gaps)/2], gaps[len(gaps)*99/100]
	t.Logf("p50 %v, p99 %v of %d", p50, p99, len(gaps))
	if v := 15 * time.Second; p50 > v*11/10 || p99 > v*13/10 {
		t.Errorf("p50 %v, p99 %v", p50, p99)
	}
}

// One of the two crashes that watch all others. Each of the two sees the other's heartbeats early, so that
// takes no longer than the crash of any other.
func TestCrashOfAWatcher(t *testing.T) {
	for rank, who := range []string{"the organiser", "its deputy"} {
		var gaps []time.Duration
		for seed := range test.Of(uint64(15), 60) {
			w := newWorld(t, seed, 40)
			for i := range 10 {
				w.proc(fmt.Sprint("p", i))
				w.run(time.Duration(w.rng.Int64N(int64(2 * time.Second))))
			}
			w.balanced(4 * w.validity)
			w.run(time.Minute + time.Duration(w.rng.Int64N(int64(w.validity))))
			w.gaps = nil
			w.ranked(rank).crash()
			w.all(2 * w.validity)
			gaps = append(gaps, w.gaps...)
		}
		slices.Sort(gaps)
		p50, p99 := gaps[len(gaps)/2], gaps[len(gaps)*99/100]
		t.Logf("%s: p50 %.2f, p99 %.2f, longest %.2f validities, of %d", who, p50.Seconds()/15, p99.Seconds()/15, gaps[len(gaps)-1].Seconds()/15, len(gaps))
		if v := 15 * time.Second; p50 > v*11/10 || p99 > v*13/10 {
			t.Errorf("%s: p50 %v, p99 %v", who, p50, p99)
		}
	}
}

// ranked returns the process that is the n-th in the order of the newest assignment.
func (w *world) ranked(n int) *proc {
	for _, p := range w.procs {
		if i, ok := p.m.Known().Index(p.id); ok && i == n {
			return p
		}
	}
	w.fail("nobody is number %d", n)
	return nil
}
