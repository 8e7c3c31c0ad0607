package chase

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/store"
)

// Swift is how quickly a store must answer a write to be worth a chase. All that has a network or
// a disk is slower: there, requests overlap by themselves, and may cost money.
const Swift = 50 * time.Microsecond

// Step is a condition that holds for one write only.
type Step struct {
	// N counts the steps from 0.
	N int
	// Version is what the write of the step before has returned.
	Version store.Version

	won atomic.Bool
}

// Result is what a chase has seen.
type Result struct {
	// Won is how many steps had a winner.
	Won int
	// Lost is how many writes were refused, because another one came first.
	Lost int
	// Twice is the step that two writers won, nil if there is none. The chase ends there.
	Twice *Step
	// Err is the first error that is not a refusal. The chase ends there.
	Err error
}

// Run lets writers chase each other until a number of steps is done, or more returns false.
// Write makes one write on the condition of a step; it is called by all writers at once. More is
// too, now and then.
func Run(writers, steps int, first store.Version, more func() bool, write func(writer int, at *Step) (store.Info, error)) Result {
	c := &chase{steps: steps, more: more, write: write}
	c.newest.Store(&Step{Version: first})
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() { c.writer(w) })
	}
	wg.Wait()
	c.result.Lost = int(c.lost.Load())
	c.result.Won = c.newest.Load().N
	return c.result
}

type chase struct {
	steps  int
	more   func() bool
	write  func(writer int, at *Step) (store.Info, error)
	newest atomic.Pointer[Step]
	lost   atomic.Int64
	over   atomic.Bool

	mu     sync.Mutex
	result Result
}

func (c *chase) writer(w int) {
	for n := 1; !c.over.Load(); n++ {
		at := c.newest.Load()
		if at.N >= c.steps || n%64 == 0 && !c.more() {
			c.over.Store(true)
			return
		}
		info, err := c.write(w, at)
		switch store.OutcomeOf(err) {
		case store.Applied:
			if at.won.Swap(true) {
				c.end(func(r *Result) { r.Twice = at })
			}
			c.newest.CompareAndSwap(at, &Step{N: at.N + 1, Version: info.Version})
		case store.Refused:
			c.lost.Add(1)
			c.await(at)
		default:
			c.end(func(r *Result) { r.Err = err })
		}
	}
}

// await waits for the winner of a step, which has its answer or will soon. It does not wait for
// ever, since the store may be wrong to refuse.
func (c *chase) await(at *Step) {
	for n := 0; n < 1000 && c.newest.Load() == at && !c.over.Load(); n++ {
		if n > 10 {
			runtime.Gosched()
		}
	}
}

func (c *chase) end(note func(*Result)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	note(&c.result)
	c.over.Store(true)
}
