package clock

import (
	"sync/atomic"
	"time"
)

// Suspendable is a clock for tests: [Go], with suspends that the test makes up.
// A suspend lets Now and Wall jump while Go's timers stand still, as happens to
// a process on a machine that sleeps. Its own timers, like those of [System],
// notice within a second of waking. The zero value works, also in a
// testing/synctest bubble.
type Suspendable struct{ slept atomic.Int64 }

// Suspend makes the machine sleep for d.
func (s *Suspendable) Suspend(d time.Duration) { s.slept.Add(int64(d)) }

// Now implements [Clock].
func (s *Suspendable) Now() Instant { return Go().Now().Add(time.Duration(s.slept.Load())) }

// Wall implements [Clock].
func (s *Suspendable) Wall() time.Time { return Go().Wall().Add(time.Duration(s.slept.Load())) }

// AfterFunc implements [Clock].
func (s *Suspendable) AfterFunc(d time.Duration, f func()) Timer { return afterFunc(s.Now, d, f) }
