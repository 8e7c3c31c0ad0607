// Package clock is the only source of time in Fencepost.
//
// Leases are measured in elapsed time that goes on while the machine is
// suspended. Go's monotonic clock stops there (golang/go#24595), so a leader
// that slept for an hour would believe its lease young; [System] reads the
// boot-time clock instead. Tests and the simulation bring clocks of their own.
package clock

import (
	"context"
	"time"
)

// Instant is a point in elapsed time since some origin that is fixed for one
// clock of one process. Only differences mean anything.
type Instant time.Duration

// Add returns the instant d later.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Clock tells elapsed time and wakes people up.
type Clock interface {
	// Now never goes back, and counts the time that the machine was suspended.
	Now() Instant
	// Wall is the time of day, for people and never for safety.
	Wall() time.Time
	// AfterFunc calls f in its own goroutine once Now has advanced by d.
	AfterFunc(d time.Duration, f func()) Timer
}

// Timer is a pending call of AfterFunc.
type Timer interface {
	// Stop prevents the call if it has not begun, and reports whether it did.
	Stop() bool
}

// Sleep waits for d or until ctx is done, whose cause it then returns.
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

// WithTimeout returns a context that is cancelled with cause once d has passed
// on c.
func WithTimeout(ctx context.Context, c Clock, d time.Duration, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	t := c.AfterFunc(d, func() { cancel(cause) })
	return ctx, func() { t.Stop(); cancel(context.Canceled) }
}

// Or returns c, or [System] if c is nil.
func Or(c Clock) Clock {
	if c == nil {
		return System()
	}
	return c
}

// System is the machine's clock.
func System() Clock { return system{} }

type system struct{}

func (system) Wall() time.Time { return time.Now() }

func (s system) AfterFunc(d time.Duration, f func()) Timer { return afterFunc(s.Now, d, f) }
