package writer

import (
	"time"

	"github.com/fencepost/fencepost/clock"
)

// pace decides when the waiting batch may be sent although a request is free, for users who
// pay by the request. Guarded by Writer.mu.
type pace struct {
	interval time.Duration // between requests on average, 0 if they are not bounded
	due      clock.Instant // of the next request, at the average rate

	wake   clock.Timer // wakes the dispatcher, nil if it is not needed
	wakeAt clock.Instant
}

func newPace(o *Options) pace {
	if o.RequestsPerSecond == 0 {
		return pace{}
	}
	return pace{interval: time.Duration(float64(time.Second) / o.RequestsPerSecond), due: o.Clock.Now()}
}

// next is when a request may be sent. The rate is an average: after a pause, requests may be
// a second ahead of it.
func (p *pace) next() clock.Instant { return p.due.Add(-max(time.Second-p.interval, 0)) }

// sent counts a request.
func (p *pace) sent(now clock.Instant) { p.due = max(p.due, now).Add(p.interval) }

// ripe reports whether the waiting batch need not wait for more appends or for the rate of
// requests. If it has to, a timer wakes the dispatcher in time. Called with mu held.
func (w *Writer) ripe() bool {
	if w.opts.Linger == 0 && w.pace.interval == 0 {
		return true
	}
	if w.err != nil {
		return true // the writer is closing: this is its last object
	}
	now := w.opts.Clock.Now()
	at := now
	if w.pace.interval > 0 {
		at = max(at, w.pace.next())
	}
	if w.opts.Linger > 0 && !w.waiting.hurry {
		at = max(at, w.waiting.begun.Add(w.opts.Linger))
	}
	if at == now {
		return true
	}
	w.wake(at, now)
	return false
}

// wake wakes the dispatcher at that time. Called with mu held.
func (w *Writer) wake(at, now clock.Instant) {
	if w.pace.wake != nil && w.pace.wakeAt == at {
		return
	}
	w.stopWake()
	w.pace.wakeAt = at
	w.pace.wake = w.opts.Clock.AfterFunc(at.Sub(now), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.pace.wakeAt == at {
			w.pace.wake = nil
		}
		w.changed.Broadcast()
	})
}

// stopWake stops the timer of wake. Called with mu held.
func (w *Writer) stopWake() {
	if w.pace.wake != nil {
		w.pace.wake.Stop()
		w.pace.wake = nil
	}
}
