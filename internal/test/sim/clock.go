package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// nodeClock is the clock of one node. It runs at its own rate, and it may jump or stop.
// Its timers fire when the scheduler says so, and never before they are due.
type nodeClock struct {
	node *node
	// The clock showed base at the simulated time since.
	since, base time.Duration
	rate        int64         // thousandths of real speed
	zero        time.Duration // what it would have shown at origin
	timers      []*timer
}

type timer struct {
	clock *nodeClock
	due   time.Duration // on the node's clock
	f     func()
}

var _ clock.Clock = (*nodeClock)(nil)

func (c *nodeClock) local(now time.Duration) time.Duration {
	return c.base + time.Duration(int64(now-c.since)/1000*c.rate+int64(now-c.since)%1000*c.rate/1000)
}

// Now implements [clock.Clock].
func (c *nodeClock) Now() clock.Instant { return clock.Instant(c.local(c.node.world.now)) }

// Wall implements [clock.Clock]. Each node's wall clock is wrong by up to an hour.
func (c *nodeClock) Wall() time.Time {
	return origin.Add(c.local(c.node.world.now) - c.zero).Add(c.node.off)
}

// AfterFunc implements [clock.Clock].
func (c *nodeClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	w := c.node.world
	t := &timer{clock: c, due: c.local(w.now) + max(d, 0), f: f}
	w.mu.Lock()
	defer w.mu.Unlock()
	c.timers = append(c.timers, t)
	return t
}

// Stop implements [clock.Timer].
func (t *timer) Stop() bool {
	w := t.clock.node.world
	w.mu.Lock()
	defer w.mu.Unlock()
	was := len(t.clock.timers)
	t.clock.timers = slices.DeleteFunc(t.clock.timers, func(o *timer) bool { return o == t })
	return len(t.clock.timers) < was
}

// set changes the clock's rate from now on, and advances it by jump.
func (c *nodeClock) set(now, jump time.Duration, rate int64) {
	c.base, c.since, c.rate = c.local(now)+jump, now, rate
}

// first returns the due time of the first timer. The caller holds world.mu.
func (c *nodeClock) first() time.Duration {
	return slices.MinFunc(c.timers, func(a, b *timer) int { return cmp.Compare(a.due, b.due) }).due
}

// next returns the simulated time at which the clock's first timer is due.
func (c *nodeClock) next(now time.Duration) (at time.Duration, ok bool) {
	c.node.world.mu.Lock()
	defer c.node.world.mu.Unlock()
	if c.rate == 0 || len(c.timers) == 0 {
		return 0, false
	}
	left := c.first() - c.local(now)
	if left <= 0 {
		return now, true
	}
	return now + time.Duration((int64(left)*1000+c.rate-1)/c.rate), true
}

// fire fires all timers with the earliest due time. They count as one event, since no
// code can tell which of them fired first.
func (c *nodeClock) fire() {
	c.node.world.mu.Lock()
	defer c.node.world.mu.Unlock()
	if len(c.timers) == 0 {
		return
	}
	due := c.first()
	c.timers = slices.DeleteFunc(c.timers, func(t *timer) bool {
		if t.due == due {
			go t.f()
		}
		return t.due == due
	})
}
