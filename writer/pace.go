package writer

import (
	"time"

	"github.com/fencepost/fencepost/clock"
)

// pace decides when what waits may be sent although a request is free: for those
// who pay by the request. It is guarded by Writer.mu.
type pace struct {
	interval time.Duration // between requests on average, 0 if they are not bounded
	due      clock.Instant // of the next request, at the average rate

	wake   clock.Timer // pending look of the dispatcher, nil if there is none
	wakeAt clock.Instant
}

func newPace(o *Options) pace {
	if o.RequestsPerSecond == 0 {
		return pace{}
	}
	return pace{interval: time.Duration(float64(time.Second) / o.RequestsPerSecond), due: o.Clock.Now()}
}

// next is when a request may be sent. The rate is an average: who was idle may be a
// second ahead of it.
func (p *pace) next() clock.Instant { return p.due.Add(-max(time.Second-p.interval, 0)) }

// sent counts a request.
func (p *pace) sent(now clock.Instant) { p.due = max(p.due, now).Add(p.interval) }

// ripe reports whether what waits need not wait any longer for the sake of fewer
// requests, and otherwise sees to it that the dispatcher looks again when it need
// not. Called with mu held.
func (w *Writer) ripe() bool {
	if w.opts.Linger == 0 && w.pace.interval == 0 {
		return true
	}
	if w.err != nil {
		return true // it is being closed: this is its last object
	}
	now := w.opts.Clock.Now()
	at := now
	if w.pace.interval > 0 {
		at = max(at, w.pace.next())
	}
	if w.opts.Linger > 0 && !w.waiting.hurry {
		at = max(at, w.waiting.since.Add(w.opts.Linger))
	}
	if at == now {
		return true
	}
	w.arm(at, now)
	return false
}

// arm makes the dispatcher look at that time. Called with mu held.
func (w *Writer) arm(at, now clock.Instant) {
	if w.pace.wake != nil && w.pace.wakeAt == at {
		return
	}
	w.disarm()
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

// disarm takes back what arm ordered. Called with mu held.
func (w *Writer) disarm() {
	if w.pace.wake != nil {
		w.pace.wake.Stop()
		w.pace.wake = nil
	}
}
