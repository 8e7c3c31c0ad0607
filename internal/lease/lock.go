package lease

import (
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// State of a lock.
type State uint8

// A lock goes from Held, perhaps over Draining, to Expired, and never back.
const (
	Held State = iota + 1
	Draining
	Expired
)

var states = [...]string{"", "held", "draining", "expired"}

func (s State) String() string { return states[s] }

// ParseState reads what String writes.
func ParseState(s string) (State, bool) {
	for i, name := range states {
		if i > 0 && name == s {
			return State(i), true
		}
	}
	return 0, false
}

// Lock is what the machine needs to know of a lock file.
type Lock struct {
	Epoch   uint64
	Version store.Version
	Nonce   string
	Holder  string
	State   State
	// Validity and Renew are what the holder announced.
	Validity, Renew time.Duration
	// Successor is who should come next; others stand back for a moment.
	Successor string
	// Wait is how long after first sight of an expired lock nobody may follow,
	// because its holder may still believe in it.
	Wait time.Duration
	// Next is the number that follows, if it is not the next one: see [Config.MinEpoch].
	Next uint64
}

// follower is the number to create once l is over. It depends on l alone: candidates
// who see the same lock race for one key.
func (l Lock) follower() uint64 { return max(l.Epoch+1, l.Next) }

// same tells whether the lock has not been written since: version and nonce,
// since some stores repeat versions.
func (l Lock) same(o Lock) bool {
	return l.Epoch == o.Epoch && l.Version == o.Version && l.Nonce == o.Nonce
}

// Config of both machines.
type Config struct {
	// Identity is who runs the machine.
	Identity string
	// Validity, Renew and Margin are those of the locks that it writes.
	Validity, Renew, Margin time.Duration
	// MinEpoch is the least number to win. Below it a candidate makes a milestone: a lock
	// that is expired from the beginning and names MinEpoch as its follower.
	MinEpoch uint64
	// MinRewrite is the least time between two writes of one lock.
	MinRewrite time.Duration
	// StallAfter ends a term without a sign of progress; 0 means never.
	StallAfter time.Duration
	// Observe makes a Candidate watch and report only.
	Observe bool
	// Random gives numbers in [0, 1), Nonce ones that never repeat.
	Random func() float64
	Nonce  func() string
}

// shortcutGrace is what Date − Last-Modified must exceed the validity by. It
// covers stores that give both in whole seconds and Dates some seconds stale.
const shortcutGrace = 5 * time.Second

// deadline is when a leader whose lock was written by a request first sent at
// that instant stops believing. Sent, not answered: a follower counts from a
// response that showed the write, which is later.
func (c *Config) deadline(sent clock.Instant) clock.Instant {
	return sent.Add(c.Validity - c.Margin)
}
