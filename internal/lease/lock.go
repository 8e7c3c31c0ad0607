package lease

import (
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// State of a lock, as the lock file spells it.
type State string

// A lock goes from Held to Expired, perhaps through Draining, and never back.
const (
	Held     State = "held"
	Draining State = "draining"
	Expired  State = "expired"
)

// Valid reports whether s is one of the three states.
func (s State) Valid() bool { return s == Held || s == Draining || s == Expired }

// Lock is the part of a lock file that the machines need.
type Lock struct {
	Epoch   fence.Epoch
	Version store.Version
	Nonce   string
	Holder  string
	State   State
	// Validity and Renew are what the holder announced.
	Validity, Renew time.Duration
	// Wait is how long after the first sight of this expired lock nobody may take
	// over, because its holder may still believe that it leads.
	Wait time.Duration
	// Next is the epoch that follows if it is not Epoch+1: see [Config.MinEpoch].
	Next fence.Epoch
}

// next is the epoch to create once l is expired. It depends on l alone, so
// all candidates that see l race for the same key.
func (l Lock) next() fence.Epoch { return max(l.Epoch+1, l.Next) }

// same reports whether o is the same write of the same lock. It compares the
// nonces too, because some stores repeat versions.
func (l Lock) same(o Lock) bool {
	return l.Epoch == o.Epoch && l.Version == o.Version && l.Nonce == o.Nonce
}

// Config of both machines.
type Config struct {
	// Identity names the candidate or leader that runs the machine.
	Identity string
	// Validity, Renew and Margin are those of the locks that it writes.
	Validity, Renew, Margin time.Duration
	// Poll is the longest time from one read of a live lock to the next; 0 and less mean no bound.
	Poll time.Duration
	// MinEpoch is the least epoch to win. Below it a candidate first creates a
	// milestone: a lock that is expired from the beginning and whose Next is MinEpoch.
	MinEpoch fence.Epoch
	// Reclaim deposes a lock of Identity at once if it is the first one that this
	// Candidate sees: its holder is known to be dead.
	Reclaim bool
	// MinRewrite is the least time between two writes of one lock.
	MinRewrite time.Duration
	// StallAfter ends a term that shows no progress for so long; 0 means never.
	StallAfter time.Duration
	// Observe makes a Candidate report who leads and never write.
	Observe bool
	// Random returns a number in [0, 1). Nonce returns a string that never repeats.
	Random func() float64
	Nonce  func() string
}

// shortcutGrace is how much older than its validity a lock must be by the store's
// clock to count as lapsed at first sight. It covers stores that round times to
// whole seconds or send a Date that is some seconds stale.
const shortcutGrace = 5 * time.Second

// deadline is when a leader stops believing that it leads, if its last applied
// write was first sent at the given instant. It counts from the send. A candidate
// counts from a response that showed the write, and that came later.
func (c *Config) deadline(sent clock.Instant) clock.Instant {
	return sent.Add(c.Validity - c.Margin)
}
