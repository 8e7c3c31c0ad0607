package clock

import "time"

// Go is a clock made of nothing but Go's package time: its monotonic clock and
// its timers. Inside a testing/synctest bubble both are virtual, which [System]
// is not, since it asks the operating system. It stops in suspend, so it is for
// tests and never for a lease on a real machine.
func Go() Clock { return goClock{} }

// goOrigin is read when the program starts, outside of every bubble. All
// instants of one bubble are measured from it alike, so their differences are
// right; instants from inside and outside of a bubble do not compare.
var goOrigin = time.Now()

type goClock struct{}

func (goClock) Now() Instant { return Instant(time.Since(goOrigin)) }

func (goClock) Wall() time.Time { return time.Now() }

func (goClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
