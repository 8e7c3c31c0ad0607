package clock

import "time"

// Go is a clock for tests. It uses Go's package time alone, so it is virtual inside
// a testing/synctest bubble. It stops while the machine is suspended: never use it
// for a lease on a real machine.
func Go() Clock { return goClock{} }

// goOrigin is read when the program starts, outside every bubble. Differences
// between instants of one bubble are right. Instants from inside and outside a
// bubble do not compare.
var goOrigin = time.Now()

type goClock struct{}

func (goClock) Now() Instant { return Instant(time.Since(goOrigin)) }

func (goClock) Wall() time.Time { return time.Now() }

func (goClock) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }
