package clock

import (
	"sync"
	"time"
)

// recheck bounds how long a timer may oversleep a suspend: Go's timers run on
// the clock that stops there.
const recheck = time.Second

// timer looks again every recheck until now has reached the deadline.
type timer struct {
	now      func() Instant
	deadline Instant
	f        func()

	mu   sync.Mutex
	done bool // f has begun or never will
	wake *time.Timer
}

func afterFunc(now func() Instant, d time.Duration, f func()) Timer {
	t := &timer{now: now, deadline: now().Add(d), f: f}
	t.mu.Lock() // look may be called before wake is set
	defer t.mu.Unlock()
	t.wake = time.AfterFunc(min(d, recheck), t.look)
	return t
}

func (t *timer) look() {
	if t.due() {
		t.f()
	}
}

// due reports whether f is to be called now, and otherwise sets the next look.
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

// Stop also ends the wait underneath, which would keep all that f refers to
// alive: most timers guard requests that end long before them.
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
