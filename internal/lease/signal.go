package lease

import (
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Cause is why a term ended, as the lock file spells it; "" while it has not.
type Cause string

// The causes.
const (
	ByExpiry    Cause = "expired"
	ByDeposing  Cause = "deposed"
	ByStall     Cause = "stalled"
	ByResigning Cause = "resigned"
)

// Lost reports whether the term ended against its leader's will.
func (c Cause) Lost() bool { return c == ByExpiry || c == ByDeposing || c == ByStall }

// Write is a swap of the leader's own lock.
type Write struct {
	// N numbers the term's writes from 1.
	N     uint64
	State State
	// Known is the version to swap. Nonce tells this write from all others. A Write
	// that is retried has the same nonce and must have the same bytes.
	Known store.Version
	Nonce string
	// First is an instant before its first attempt is sent. Due is when that should
	// have been.
	First, Due clock.Instant
}

// Ready is what follows from a signal.
type Ready struct {
	// Cancel, if not "", ends the term's context, before anything else is done. It
	// comes once.
	Cancel Cause
	// Write, if not nil, is to be sent and answered by Wrote, Denied or Broken. At
	// most one is in flight.
	Write *Write
	// Wake asks for a Tick at that instant, unless a signal comes before.
	Wake clock.Instant
	// Done says that nothing is left to do: the lock is released, or it is lost and
	// only Resign can follow.
	Done bool
}

// Signal is an event for a leader.
type Signal uint8

// The signals.
const (
	// Tick: time has passed.
	Tick Signal = iota + 1
	// Wrote: the write was applied, and made Version.
	Wrote
	// Denied: the write was refused. Found is the lock that stands there instead.
	Denied
	// Broken: the write was rejected, or its outcome is unknown. It is to be retried.
	Broken
	// Resign: leave. The work may go on for Drain; then its context is cancelled.
	Resign
	// WorkDone: the work has ended.
	WorkDone
	// Renew: send a heartbeat as soon as possible.
	Renew
	// GaveUp: the release was not applied, and nobody retries it. The lock will lapse.
	GaveUp
)

// Input is a signal with its details.
type Input struct {
	Signal  Signal
	Version store.Version
	Found   Lock // Epoch 0: the lock was deleted, or cannot be read
	Drain   time.Duration
	// Progress is when the work last showed progress. It comes with every signal.
	Progress clock.Instant
}
