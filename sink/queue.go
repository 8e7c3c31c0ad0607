package sink

import (
	"sync"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/fencepost/fencepost/clock"
)

const (
	// most lines wait. Later ones are lost, and counted.
	most = 1000
	// patience is how long calls wait for their lines, in each span: so a line that is written at once stands before what the
	// caller does next, and a sink that is always slow costs a hundredth of the time.
	patience = 100 * time.Millisecond
	span     = 10 * time.Second
)

// Queue writes lines in their order, beside the work. If they cannot be written it loses them, and says later how many.
// It is safe for concurrent use. A goroutine writes while there are lines, so nobody need close a queue.
type Queue struct {
	// Lost writes that so many lines were not written.
	Lost func(lines int) error

	mu      sync.Mutex
	waiting []line
	idle    chan struct{} // closed when nothing is left to write; nil: nothing is
	begun   clock.Instant // when this span began
	waited  time.Duration // for lines, in this span
	lost    int
	worst   zapcore.Level // the highest of what is lost
	said    zapcore.Level // that of the loss which Lost says; the writing goroutine's
}

type line struct {
	lines int
	level zapcore.Level
	write func() error
	done  chan struct{}
}

// Do has write called, which writes so many lines. It waits for that, but calls wait for no longer than 100 ms in 10 s.
func (q *Queue) Do(lines int, write func() error) { q.do(lines, zapcore.InfoLevel, write) }

func (q *Queue) do(lines int, level zapcore.Level, write func() error) {
	l := line{lines, level, write, make(chan struct{})}
	q.mu.Lock()
	if len(q.waiting) == most {
		q.lose(l)
		q.mu.Unlock()
		return
	}
	q.waiting = append(q.waiting, l)
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.drain()
	}
	now := clock.Go().Now()
	if d := now.Sub(q.begun); d >= span || d < 0 { // a bubble of synctest has a time of its own
		q.begun, q.waited = now, 0
	}
	left := patience - q.waited
	q.mu.Unlock()
	// guard:log-beside. Work never waits for a line of its log for longer than a moment.
	//
	//mutant:replace wait(l.done, left) => wait(l.done, 24*time.Hour)
	if left > 0 {
		wait(l.done, left)
		q.mu.Lock()
		q.waited += clock.Go().Now().Sub(now)
		q.mu.Unlock()
	}
}

// lose counts a line that is not written. The caller holds the lock.
func (q *Queue) lose(l line) {
	if q.lost == 0 || l.level > q.worst {
		q.worst = l.level
	}
	q.lost += l.lines
}

// busy reports whether a line waits or is being written.
func (q *Queue) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.idle != nil
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

// wait waits until done is closed, for at most d. The time is the machine's: what blocks is not part of any simulation.
func wait(done <-chan struct{}, d time.Duration) {
	late := make(chan struct{})
	defer clock.Go().AfterFunc(d, func() { close(late) }).Stop()
	select {
	case <-done:
	case <-late:
	}
}

// drain writes until no line waits.
func (q *Queue) drain() {
	finished := false
	defer func() {
		if !finished { // a write ended the goroutine: runtime.Goexit, as a test's FailNow does
			go q.drain()
		}
	}()
	works := false // the last line was written
	for {
		l, ok := q.next(works)
		if !ok {
			break
		}
		works = q.attempt(l)
	}
	finished = true
}

// next takes a line out of the queue: one that says what is lost if there is no other, and the sink works.
func (q *Queue) next(works bool) (line, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case len(q.waiting) > 0:
		l := q.waiting[0]
		q.waiting = q.waiting[1:]
		return l, true
	case q.lost > 0 && works:
		lost := q.lost
		q.lost, q.said = 0, q.worst
		return line{lost, q.said, func() error { return q.Lost(lost) }, make(chan struct{})}, true
	}
	q.waiting = nil
	close(q.idle)
	q.idle = nil
	return line{}, false
}

// attempt reports whether a line is written. One whose write panics, or ends the goroutine, is lost: who logs is not to die
// of that.
func (q *Queue) attempt(l line) (written bool) {
	defer func() {
		_ = recover()
		close(l.done)
		if !written {
			q.mu.Lock()
			defer q.mu.Unlock()
			q.lose(l)
		}
	}()
	return l.write() == nil
}
