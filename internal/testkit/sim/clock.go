package sim

import (
	"time"

	"github.com/fencepost/fencepost/clock"
)

// nodeClock is a node's own clock. It goes with simulated time at a rate of its
// own, may jump and may stand still. Its timers fire when the scheduler says so,
// never before they are due.
type nodeClock struct {
	node *node
	// At simulated time since it showed base.
	since, base time.Duration
	rate        int64         // in thousandths
	zero        time.Duration // what it would have shown at origin
	timers      []*timer
}

type timer struct {
	clock *nodeClock
	due   time.Duration // on the node's clock
	seq   int
	f     func()
}

var _ clock.Clock = (*nodeClock)(nil)

func (c *nodeClock) local(now time.Duration) time.Duration {
	return c.base + time.Duration(int64(now-c.since)/1000*c.rate+int64(now-c.since)%1000*c.rate/1000)
}

// Now implements [clock.Clock].
func (c *nodeClock) Now() clock.Instant { return clock.Instant(c.local(c.node.world.now)) }

// Wall implements [clock.Clock]. It is an hour off, or a few, as far as anybody may
// know.
func (c *nodeClock) Wall() time.Time {
	return origin.Add(c.local(c.node.world.now) - c.zero).Add(c.node.off)
}

// AfterFunc implements [clock.Clock].
func (c *nodeClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	w := c.node.world
	t := &timer{clock: c, due: c.local(w.now) + max(d, 0), f: f}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timers++
	t.seq = w.timers
	c.timers = append(c.timers, t)
	return t
}

// Stop implements [clock.Timer].
func (t *timer) Stop() bool {
	w := t.clock.node.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, o := range t.clock.timers {
		if o == t {
			last := len(t.clock.timers) - 1
			t.clock.timers[i] = t.clock.timers[last]
			t.clock.timers[last] = nil
			t.clock.timers = t.clock.timers[:last]
			return true
		}
	}
	return false
}

// set changes how the clock goes from now on.
func (c *nodeClock) set(now, jump time.Duration, rate int64) {
	c.base, c.since, c.rate = c.local(now)+jump, now, rate
}

// next is the simulated time at which the first timer is due.
func (c *nodeClock) next(now time.Duration) (at time.Duration, ok bool) {
	c.node.world.mu.Lock()
	defer c.node.world.mu.Unlock()
	if c.rate == 0 || len(c.timers) == 0 {
		return 0, false
	}
	due := c.timers[0].due
	for _, t := range c.timers[1:] {
		due = min(due, t.due)
	}
	left := due - c.local(now)
	if left <= 0 {
		return now, true
	}
	return now + time.Duration((int64(left)*1000+c.rate-1)/c.rate), true
}

// fire lets those timers run that are due first. They are one stimulus: which of
// them came first nobody can tell.
func (c *nodeClock) fire() {
	c.node.world.mu.Lock()
	defer c.node.world.mu.Unlock()
	if len(c.timers) == 0 {
		return
	}
	due := c.timers[0].due
	for _, t := range c.timers[1:] {
		due = min(due, t.due)
	}
	var fire, keep []*timer
	for _, t := range c.timers {
		if t.due == due {
			fire = append(fire, t)
		} else {
			keep = append(keep, t)
		}
	}
	c.timers = keep
	for i := range fire { // in the order in which they were set
		for j := i; j > 0 && fire[j].seq < fire[j-1].seq; j-- {
			fire[j], fire[j-1] = fire[j-1], fire[j]
		}
	}
	for _, t := range fire {
		go t.f()
	}
}
