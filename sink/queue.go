package sink

import (
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
)

const (
	// most lines wait. Later ones are lost, and counted.
	most = 1000
	// patience is how long a call waits for its line: so a line that is written at once stands before what the caller does
	// next. Once that was in vain, no call waits until the queue is empty again.
	patience = 100 * time.Millisecond
)

// Queue writes lines in their order, beside the work. If they cannot be written it loses them, and says later how many.
// It is safe for concurrent use. A goroutine writes while there are lines, so nobody need close a queue.
type Queue struct {
	// Lost writes that so many lines were not written.
	Lost func(lines int) error

	mu      sync.Mutex
	waiting []line
	idle    chan struct{} // closed when the goroutine that writes ends; nil: there is none
	stalled bool          // a call has waited in vain since the queue was empty
	lost    int
}

type line struct {
	lines int
	write func() error
	done  chan struct{}
}

// Do has write called, which writes so many lines. It waits for that for 100 ms at most.
func (q *Queue) Do(lines int, write func() error) {
	q.mu.Lock()
	if len(q.waiting) == most {
		q.lost += lines
		q.mu.Unlock()
		return
	}
	l := line{lines, write, make(chan struct{})}
	q.waiting = append(q.waiting, l)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.drain()
	}
	stalled := q.stalled
	q.mu.Unlock()
	// guard:log-beside. Work never waits for a line of its log for longer than a moment. Without this: a leader's standard
	// error is a pipe that nobody reads; it writes a line and blocks; it does no work, and its heartbeats or its signal
	// handler go on in another goroutine, so no candidate takes over.
	//
	//mutant:replace !wait(l.done, patience) => !wait(l.done, 24*time.Hour)
	if !stalled && !wait(l.done, patience) {
		q.mu.Lock()
		q.stalled = q.idle != nil
		q.mu.Unlock()
	}
}

// Wait waits until all lines are written, for at most d.
func (q *Queue) Wait(d time.Duration) {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	if idle != nil {
		wait(idle, d)
	}
}

// wait reports whether done is closed within d. The time is the machine's: what blocks is not part of any simulation.
func wait(done <-chan struct{}, d time.Duration) bool {
	late := make(chan struct{})
	defer clock.Go().AfterFunc(d, func() { close(late) }).Stop()
	select {
	case <-done:
		return true
	case <-late:
		return false
	}
}

// drain writes until no line waits.
func (q *Queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	works := false // the last line was written
	for {
		var l line
		switch {
		case len(q.waiting) > 0:
			l, q.waiting = q.waiting[0], q.waiting[1:]
		case q.lost > 0 && works:
			lost := q.lost
			l, q.lost = line{lost, func() error { return q.Lost(lost) }, make(chan struct{})}, 0
		default:
			q.waiting, q.stalled = nil, false
			close(q.idle)
			q.idle = nil
			return
		}
		q.mu.Unlock()
		err := attempt(l.write)
		close(l.done)
		q.mu.Lock()
		if works = err == nil; !works {
			q.lost += l.lines
		}
	}
}

// attempt calls write. One that panics fails: who logs is not to die of that.
func attempt(write func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("sink: panic: %v", r)
		}
	}()
	return write()
}
