package member_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/internal/test"
)

// watchTries counts who works on a partition from now on, and how often.
func (w *world) watchTries(partition int) map[string]int {
	tries := map[string]int{}
	for _, p := range w.procs {
		fails := p.fails
		p.fails = func(n int) bool {
			if n == partition {
				tries[p.name]++
			}
			return fails != nil && fails(n)
		}
	}
	return tries
}

// calls are the calls with contents in the store.
func (w *world) calls() map[string]*member.Call {
	calls := map[string]*member.Call{}
	for _, key := range w.keys {
		if c, ok := w.store[key].doc.(*member.Call); ok {
			calls[key] = c
		}
	}
	return calls
}

func (w *world) assignment() *assign.Assignment {
	return w.store[member.AssignKey(w.newest())].doc.(*assign.Assignment)
}

// givenUp is what an observer calls given up.
func (w *world) givenUp() []int { return member.GivenUp(w.assignment(), w.calls()) }

// allBut fails the test unless all partitions but one are worked on, and that one has no owner.
func (w *world) allBut(partition int) {
	w.Helper()
	if !w.shares(w.partitions-1) || w.assignment().Owner(partition) != assign.Nobody {
		w.fail("%s; the owner of %d is %d", w.state(), partition, w.assignment().Owner(partition))
	}
}

// parked counts the reports.
func (w *world) parked() (n int) {
	return w.notes[member.NoteParked] + w.notes[member.NoteWithheld]
}

// Work that fails everywhere is tried by three owners, however long each try takes.
//
// guard:quit-kept. Without this check: the work on the partition fails after almost five minutes with
// every owner; A gives it up, and so does B a quarter of an hour later; meanwhile it is forgotten that
// A gave it up, so the partition goes to A again; it is passed round for ever, and never reported.
func TestSlowFailuresArePassedRoundThreeTimes(t *testing.T) {
	for _, in := range test.Of([]time.Duration{0, 294 * time.Second}, []time.Duration{0, time.Minute, 3 * time.Minute, 294 * time.Second}) {
		t.Run(in.String(), func(t *testing.T) {
			w := newWorld(t, 1, 12)
			for i := range 6 {
				p := w.proc(fmt.Sprint("p", i))
				p.fails, p.failsIn = func(n int) bool { return n == 7 }, in
			}
			tries := w.watchTries(7)
			w.balanced(time.Minute)
			w.run(2 * time.Hour)
			if len(tries) != 3 || w.parked() != 1 {
				t.Errorf("%v tried it, and it was reported %d times", tries, w.parked())
			}
			if s := fmt.Sprint(w.givenUp()); s != "[7]" {
				t.Errorf("given up are %v", s)
			}
		})
	}
}

// Once the trouble of a partition is over, it is forgotten who gave it up.
func TestTroubleIsForgotten(t *testing.T) {
	bad := false
	w := newWorld(t, 1, 12)
	for i := range 6 {
		w.proc(fmt.Sprint("p", i)).fails = func(n int) bool { return bad && n == 7 }
	}
	tries := w.watchTries(7)
	w.balanced(time.Minute)
	restart := func() {
		for _, p := range w.procs {
			if x := p.works[7]; x != nil {
				p.back(x, true)
			}
		}
	}
	for round := range 3 {
		// Two owners give it up, and with the third one it is well.
		bad = true
		restart()
		for len(tries) < 3 {
			w.run(time.Second)
		}
		bad = false
		w.run(time.Hour)
		if w.parked() != 0 || len(w.givenUp()) != 0 || len(w.calls()) != 0 {
			t.Fatalf("round %d: reported %d times, given up are %v, %d calls are left", round, w.parked(), w.givenUp(), len(w.calls()))
		}
		clear(tries)
	}
	// Three owners give it up. Then it is well with the last one.
	bad = true
	restart()
	w.run(time.Hour)
	if w.parked() != 1 || len(w.givenUp()) != 1 {
		t.Fatalf("reported %d times, given up are %v", w.parked(), w.givenUp())
	}
	bad = false
	w.run(20 * time.Minute)
	if len(w.givenUp()) != 0 || len(w.calls()) != 0 {
		t.Fatalf("given up are %v, %d calls are left", w.givenUp(), len(w.calls()))
	}
	// It begins again.
	clear(tries)
	bad = true
	restart()
	w.run(time.Hour)
	if w.parked() != 2 || len(tries) != 3 {
		t.Fatalf("reported %d times, tried by %v", w.parked(), tries)
	}
}

// A partition whose work hangs ends the session of three owners. Then nobody owns it, and the others keep
// their shares.
//
// guard:hung-parked. Without this check: the work on the partition ignores the end of its context; each
// owner's session ends because of it, and all its other partitions move; so it goes on with one worker
// after the other, until none is left, or for as long as they are started again.
func TestHungPartitionEndsThreeSessions(t *testing.T) {
	for _, stall := range []time.Duration{20 * time.Second, 20 * time.Minute} {
		t.Run(stall.String(), func(t *testing.T) {
			w := newWorld(t, 1, 12)
			w.stallAfter = stall
			w.stuck = []int{7}
			for i := range 6 {
				w.proc(fmt.Sprint("p", i))
			}
			w.run(6 * time.Hour)
			ends := 0
			for _, p := range w.procs {
				for _, e := range p.ends {
					if ends++; e != member.ByHanging {
						t.Errorf("%s ended: %s", p.name, e)
					}
				}
			}
			if ends != 3 || w.notes[member.NoteWithheld] != 1 || w.parked() != 1 {
				t.Errorf("%d sessions ended, and it was reported %d times", ends, w.parked())
			}
			w.allBut(7)
			if s := fmt.Sprint(w.givenUp()); s != "[7]" {
				t.Errorf("given up are %v", s)
			}
			w.still(10 * time.Minute)

			// All leave, and others come. Nobody owns it still.
			for i, p := range w.procs {
				p.leave(true)
				w.proc(fmt.Sprint("q", i))
				w.run(time.Minute)
			}
			w.allBut(7)

			// An operator lets it run again.
			w.stuck = nil
			key, call := member.Again(w.calls(), []int{3, 7}, id(7), "again")
			w.write(key, call)
			w.balanced(time.Minute)
			w.run(time.Hour)
			if len(w.givenUp()) != 0 || len(w.calls()) != 0 {
				t.Errorf("given up are %v, %d calls are left", w.givenUp(), len(w.calls()))
			}
		})
	}
}

// A member that has said that its work hangs gets no partition, also if no assignment lists it: its session ends soon.
// That may be when its work returned after the call, and everything had moved away from it.
func TestHungMemberGetsNothing(t *testing.T) {
	w := newWorld(t, 1, 4)
	w.proc("a")
	w.balanced(w.validity)
	x := w.proc("b")
	w.write(member.CallPrefix+x.id.String()+"/"+member.FormatNumber(1)+".json",
		&member.Call{Nonce: "n", Given: []member.Given{{Partition: 0, Tenure: 1, Hung: true}}})
	w.run(2 * w.validity)
	if w.procs[1].m.Known().Number() == 0 {
		t.Fatal("b does not take part")
	}
	if i, ok := w.assignment().Index(x.id); ok {
		t.Errorf("it is in the assignment, with %d partitions", w.assignment().Shares()[i])
	}
}
