package clock

import (
	"sync/atomic"
	"time"
)

// Suspendable is a clock for tests: [Go], with suspends that the test makes up. In
// a suspend Now and Wall jump while Go's timers stand still, as on a machine that
// sleeps. AfterFunc notices within a second, like that of [System]. The zero value
// works, also inside a testing/synctest bubble.
type Suspendable struct{ slept atomic.Int64 }

// Suspend lets d pass as if the machine slept. It returns at once.
func (s *Suspendable) Suspend(d time.Duration) { s.slept.Add(int64(d)) }

// Now implements [Clock].
func (s *Suspendable) Now() Instant { return Go().Now().Add(time.Duration(s.slept.Load())) }

// Wall implements [Clock].
func (s *Suspendable) Wall() time.Time { return Go().Wall().Add(time.Duration(s.slept.Load())) }

// AfterFunc implements [Clock].
func (s *Suspendable) AfterFunc(d time.Duration, f func()) Timer { return afterFunc(s.Now, d, f) }
