package lease

import (
	"time"

	"github.com/fencepost/fencepost/clock"
)

// cadence keeps a watcher's looks in phase with the leader's heartbeat: one
// look a heartbeat, soon after it. A watcher counts the validity from its own
// first sight of a version, so every moment between the leader's write and that
// sight is a moment that a crash stays unnoticed.
//
// It knows an interval in which the last heartbeat was written and, since the
// leader announces its period, where the next one is due. A look in the middle
// of a wide interval halves it whatever it shows. Nothing here matters for
// safety.
type cadence struct {
	lo, hi clock.Instant // the last heartbeat was written in (lo, hi]
	period time.Duration
	fine   time.Duration // narrow enough
	late   time.Duration // how long the next look waits for a late heartbeat
	spread time.Duration // this watcher's own distance from the others
}

// begin starts anew with a version seen at r, which the store says was written
// age ± slack ago, if it says so.
// Random, from [0, 1), spreads the watchers' looks.
func (c *cadence) begin(r clock.Instant, l Lock, age *Age, random float64) {
	*c = cadence{lo: r.Add(-l.Renew), hi: r, period: l.Renew, fine: l.Validity / 32}
	c.spread = c.fine/8 + time.Duration(random*float64(c.fine)/2)
	if age != nil {
		lo, hi := r.Add(-age.Since-age.Slack), r.Add(age.Slack-age.Since)
		c.lo, c.hi = max(c.lo, lo), max(min(c.hi, hi), c.lo)
	}
	c.late = c.fine / 2
}

// unchanged tells of a look sent at s that did not show a heartbeat.
func (c *cadence) unchanged(s clock.Instant) {
	prev := s.Add(-c.period)
	c.lo = max(c.lo, prev)
	if prev >= c.hi {
		// Later than it can be: the leader is slow, or gone. Look less and less often.
		c.hi = prev.Add(c.late)
		c.late = min(2*c.late, c.period/2)
	}
}

// changed tells of a response at r that showed a new version. It is false if
// more than one heartbeat may have been missed.
func (c *cadence) changed(r clock.Instant) bool {
	c.hi = min(c.hi.Add(c.period), r)
	// The interval leaks downwards, so that a leader whose clock runs faster is
	// looked for a little earlier once in a while.
	c.lo = c.lo.Add(c.period - c.period/256)
	c.late = c.fine / 2
	if c.lo >= c.hi {
		c.lo = c.hi.Add(-c.period / 2) // out of phase: search again
	}
	return r.Sub(c.hi) <= c.period
}

// next is when to look. After a miss within the period, at its end: one extra
// look a period at most.
func (c *cadence) next(missed bool) clock.Instant {
	lo, hi := c.lo.Add(c.period), c.hi.Add(c.period)
	if w := hi.Sub(lo); w > c.fine && !missed {
		return lo.Add(w / 2)
	}
	return hi.Add(c.spread)
}
