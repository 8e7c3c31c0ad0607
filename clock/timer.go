package clock

import (
	"sync"
	"time"
)

// recheck is how late a timer may fire after a suspend, in which Go's own timers
// stop.
const recheck = time.Second

// timer checks every recheck whether now has reached the deadline.
type timer struct {
	now      func() Instant
	deadline Instant
	f        func()

	mu   sync.Mutex
	done bool // f was called, or never will be
	wake *time.Timer
}

func afterFunc(now func() Instant, d time.Duration, f func()) Timer {
	t := &timer{now: now, deadline: now().Add(d), f: f}
	t.mu.Lock() // check may be called before wake is set
	defer t.mu.Unlock()
	t.wake = time.AfterFunc(min(d, recheck), t.check)
	return t
}

func (t *timer) check() {
	if t.due() {
		t.f()
	}
}

// due reports whether to call f now. Otherwise it sets the next check.
func (t *timer) due() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return false
	}
	if left := t.deadline.Sub(t.now()); left > 0 {
		t.wake.Reset(min(left, recheck))
		return false
	}
	t.done = true
	return true
}

// Stop also stops the Go timer, so that f and all it refers to can be collected.
// Most timers bound requests that end long before them.
func (t *timer) Stop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		return false
	}
	t.done = true
	t.wake.Stop()
	return true
}
