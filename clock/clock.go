package clock

import (
	"context"
	"math"
	"time"
)

// Instant is a point in elapsed time. Its origin is fixed for one clock in one
// process, so only differences between instants of the same clock mean anything.
type Instant time.Duration

// Add returns the instant d later, or the latest one of the type if that is too late for it.
func (t Instant) Add(d time.Duration) Instant {
	if d > 0 && t > math.MaxInt64-Instant(d) {
		return math.MaxInt64
	}
	return t + Instant(d)
}

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Clock measures elapsed time and sets timers. It is safe for concurrent use.
type Clock interface {
	// Now never goes back. It counts the time in which the machine was suspended.
	Now() Instant
	// Wall is the time of day. It may be wrong and may jump, so use it only for
	// display and logs.
	Wall() time.Time
	// AfterFunc calls f in its own goroutine once Now has advanced by d. After a
	// suspend the call may come up to a second late.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of AfterFunc.
type Timer interface {
	// Stop prevents the call if it has not begun, and reports whether it did.
	Stop() bool
}

// Sleep waits until d has passed on c. If ctx ends first, it returns ctx's cause.
func Sleep(ctx context.Context, c Clock, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if d <= 0 {
		return nil
	}
	done := make(chan struct{})
	t := c.AfterFunc(d, func() { close(done) })
	defer t.Stop()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// WithTimeout returns a copy of ctx that is cancelled with cause once d has passed
// on c. Call the function that it returns when the context is not needed any more.
func WithTimeout(ctx context.Context, c Clock, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(cause) })
	return ctx, func() { t.Stop(); cancel(context.Canceled) }
}

// Or returns c, or [System] if c is nil. It is for packages with an Options.Clock.
func Or(c Clock) Clock {
	if c == nil {
		return System()
	}
	return c
}

// System is the machine's clock. It counts suspends: by CLOCK_BOOTTIME on Linux,
// elsewhere by comparing the monotonic clock with the time of day.
func System() Clock { return system{} }

type system struct{}

func (system) Wall() time.Time { return time.Now() }

func (s system) AfterFunc(d time.Duration, f func()) Timer { return afterFunc(s.Now, d, f) }
