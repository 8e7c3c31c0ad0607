package lease

import (
	"time"

	"github.com/fencepost/fencepost/clock"
)

// cadence times a candidate's reads: one per heartbeat, soon after it. A candidate
// counts the validity from the moment it first sees a version, so each moment
// between a heartbeat and the read that shows it delays the takeover after a crash.
//
// A cadence knows an interval in which the last heartbeat was written. The leader
// announces its period, so the next one is due a period later. While the interval
// is wide, each read goes to its middle and halves it, whatever the read shows.
// Safety does not depend on any of this.
type cadence struct {
	lo, hi clock.Instant // the last heartbeat was written in (lo, hi]
	period time.Duration
	fine   time.Duration // an interval this narrow is not halved any more
	late   time.Duration // how long the next read waits for a late heartbeat
	spread time.Duration // keeps this candidate's reads apart from the others'
}

// begin starts again with a version that a response at r showed. If age is not
// nil, the version was written age.Since ± age.Slack before r. random, from [0, 1),
// keeps the candidates apart.
func (c *cadence) begin(r clock.Instant, l Lock, age *Age, random float64) {
	*c = cadence{lo: r.Add(-l.Renew), hi: r, period: l.Renew, fine: l.Validity / 32}
	c.spread = c.fine/8 + time.Duration(random*float64(c.fine)/2)
	if age != nil {
		lo, hi := r.Add(-age.Since-age.Slack), r.Add(age.Slack-age.Since)
		c.lo, c.hi = max(c.lo, lo), max(min(c.hi, hi), c.lo)
	}
	c.late = c.fine / 2
}

// unchanged notes that a read sent at s did not show a heartbeat.
func (c *cadence) unchanged(s clock.Instant) {
	prev := s.Add(-c.period)
	c.lo = max(c.lo, prev)
	if prev >= c.hi {
		// Later than the heartbeat was due: the leader is slow, or dead. Read less often.
		c.hi = prev.Add(c.late)
		c.late = min(2*c.late, c.period/2)
	}
}

// changed notes that a response at r showed a new version. It returns false if
// more than one heartbeat may have been missed.
func (c *cadence) changed(r clock.Instant) bool {
	c.hi = min(c.hi.Add(c.period), r)
	// lo falls back a little each period, so that a leader whose clock runs fast is
	// sometimes expected earlier.
	c.lo = c.lo.Add(c.period - c.period/256)
	c.late = c.fine / 2
	if c.lo >= c.hi {
		c.lo = c.hi.Add(-c.period / 2) // out of phase: search again
	}
	return r.Sub(c.hi) <= c.period
}

// next is when to read again. After a miss within the period it is the period's
// end, so that there is at most one extra read a period.
func (c *cadence) next(missed bool) clock.Instant {
	lo, hi := c.lo.Add(c.period), c.hi.Add(c.period)
	if w := hi.Sub(lo); w > c.fine && !missed {
		return lo.Add(w / 2)
	}
	return hi.Add(c.spread)
}
