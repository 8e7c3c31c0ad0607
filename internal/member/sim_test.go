package member_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/member"
)

// balanced fails the test unless every partition is worked on by a live process, shares are fair, and
// nothing moves any more.
func (w *world) balanced(within time.Duration) {
	w.Helper()
	start := w.now
	for !w.whole() {
		if w.now-start > within {
			w.fail("after %v: %s", within, w.state())
		}
		w.run(100 * time.Millisecond)
	}
}

// whole reports whether every partition is worked on, and shares are fair.
func (w *world) whole() bool { return w.shares(w.partitions) }

// shares reports whether so many partitions are worked on, and shares are fair.
func (w *world) shares(partitions int) bool {
	least, most, sum := 1<<30, 0, 0
	for _, p := range w.procs {
		if p.crashed {
			continue
		}
		n := len(p.works)
		least, most, sum = min(least, n), max(most, n), sum+n
	}
	return sum == partitions && most-least <= 1
}

func (w *world) state() (s string) {
	for _, p := range w.procs {
		if !p.crashed {
			s += fmt.Sprintf("%s has %d (knows %d, deadline in %v); ", p.name, len(p.works), p.m.Known().Number(), time.Duration(p.m.Deadline()-p.local()))
		}
	}
	return s + fmt.Sprintf("the newest assignment is %d", w.newest())
}

// still fails the test if anything moves in d.
func (w *world) still(d time.Duration) {
	w.Helper()
	n, moves := w.newest(), w.moves
	w.run(d)
	if w.newest() != n || w.moves != moves {
		w.fail("in %v without an event %d assignments were made, and %d partitions started", d, w.newest()-n, w.moves-moves)
	}
}

func TestOneMember(t *testing.T) {
	w := newWorld(t, 1, 10)
	w.proc("a")
	w.balanced(2 * time.Second)
	w.still(5 * time.Minute)
}

func TestJoinsMoveAsLittleAsFairnessAsks(t *testing.T) {
	w := newWorld(t, 1, 100)
	for i := range 10 {
		w.proc(fmt.Sprint("p", i))
		w.balanced(20 * time.Second)
		w.run(10 * time.Second)
	}
	w.still(5 * time.Minute)
	before := w.moves
	w.proc("next")
	w.balanced(20 * time.Second)
	w.still(time.Minute)
	if n := w.moves - before; n > 10 {
		t.Errorf("%d partitions moved to the 11th member of 100 partitions", n)
	}
}

func TestManySeeds(t *testing.T) {
	first, last := uint64(1), uint64(10)
	if s := os.Getenv("FENCEPOST_SEEDS"); s != "" {
		if _, err := fmt.Sscanf(s, "%d-%d", &first, &last); err != nil {
			t.Fatal(err)
		}
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { chaos(t, seed) })
	}
}

// chaos plays one history.
func chaos(t *testing.T, seed uint64) {
	w := newWorld(t, seed, 3+int(seed%20))
	w.faults, w.late = 0.05, 0.05
	w.contents = seed%2 == 0
	byHand := seed%5 == 0
	if byHand {
		w.late = 0 // two faults at once are not promised: see spec/README.md
	}
	for i := range 2 + int(seed%5) {
		w.proc(fmt.Sprint("p", i))
	}
	lives := len(w.procs)
	for range 60 {
		w.run(time.Duration(w.rng.Int64N(int64(15 * time.Second))))
		p := w.procs[w.rng.IntN(len(w.procs))]
		if p.crashed {
			continue
		}
		switch w.rng.IntN(10) {
		case 0:
			p.crash()
			lives++
			w.proc(fmt.Sprint("p", lives))
		case 1, 2:
			p.pause(time.Duration(w.rng.Int64N(int64(40*time.Second))) << (3 * w.rng.IntN(2)))
		case 3:
			p.pause(30 * 24 * time.Hour)
			lives++
			w.proc(fmt.Sprint("p", lives))
		case 4, 5:
			p.leave(false)
		case 6:
			p.hangs = true
		case 7:
			p.hangs = false
		case 8:
			if w.partitions < 40 {
				w.partitions += w.rng.IntN(3)
				w.write(member.FormatKey, &member.Format{Partitions: w.partitions})
			}
		case 9:
			if byHand {
				w.tell("somebody deletes %s's object", p.name)
				w.remove(member.Key(p.id))
			}
		}
	}
	// From now on nothing goes wrong. Those that sleep never wake.
	w.faults, w.late = 0, 0
	for _, p := range w.procs {
		p.hangs = false
		if p.paused > w.now+time.Hour {
			p.crash()
		}
	}
	w.run(6 * time.Minute) // those that are paused wake
	w.balanced(4 * time.Minute)
	w.run(2 * time.Minute)
	w.still(5 * time.Minute)
	if len(w.store) > 40+10*len(w.procs) {
		w.run(20 * time.Minute)
		if n := len(w.store); n > 20+4*len(w.procs) {
			for key := range w.store {
				t.Log(key)
			}
			t.Errorf("%d objects are left", n)
		}
	}
}
