package leader

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store/contact"
)

// The causes of a term's end. Each is also an [ErrLost]. They are the cause
// (context.Cause) of the term's context, inside a [TermError]. A term that has
// ended never comes back.
var (
	// ErrLost: the term is over, for any cause.
	ErrLost = errors.New("leader: the term is over")
	// ErrExpired: no heartbeat was applied before the leader's own deadline.
	ErrExpired error = &cause{"leader: the term expired: no heartbeat was applied in time", ErrLost}
	// ErrDeposed: a heartbeat was refused, because a successor or an operator has
	// expired the lock.
	ErrDeposed error = &cause{"leader: deposed: somebody else has expired the lock", ErrLost}
	// ErrStalled: the work did not call [Term.Progress] for Options.StallAfter.
	ErrStalled error = &cause{"leader: the work stalled", ErrLost}
	// ErrResigned: the leader left of its own will.
	ErrResigned error = &cause{"leader: resigned", ErrLost}
)

var (
	// ErrShort: [Term.Check] found less time than was asked for. The term goes on.
	ErrShort = errors.New("leader: the term has less time left than is needed")
	// ErrNoLeader: there is no lock, or the newest one is expired or has lapsed.
	ErrNoLeader = errors.New("leader: nobody leads")
	// ErrBusy: this elector is already campaigning or leading.
	ErrBusy = errors.New("leader: this elector is already campaigning or leading")
	// ErrOptions: the options cannot work. The error lists all faults.
	ErrOptions = errors.New("leader: invalid options")
	// ErrFormat: a newer version of this project has written the lock. It is also a [fence.ErrFormat].
	ErrFormat error = &cause{"leader: unknown lock format", fence.ErrFormat}
	// ErrCorrupt: the newest lock is not what an elector writes. It is also a [fence.ErrCorrupt].
	ErrCorrupt error = &cause{"leader: the newest lock is corrupt", fence.ErrCorrupt}
	// ErrInconsistent: no election is possible on this store. It does not list what
	// it has stored, or the highest possible epoch is used.
	ErrInconsistent = errors.New("leader: no election is possible on this store")
	// ErrNotReleased: the term is over, but its lock could not be swapped to expired.
	// It will lapse after its validity.
	ErrNotReleased = errors.New("leader: the lock could not be released and will lapse")
)

type cause struct {
	text   string
	parent error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.parent }

// TermError says which term ended and why. It is the cause of the term's context,
// and unwraps to one of the causes above, such as [ErrExpired].
type TermError struct {
	Epoch fence.Epoch
	// Kind is one of the causes.
	Kind error
	// Err is what led to it, or nil: the last failed heartbeat, or the cause of the
	// context that was given to Run.
	Err error
	// Successor is the candidate that was close when a leader left of its own will, and
	// will most likely lead next; "" if none was.
	Successor string
}

func (e *TermError) Error() string {
	s := fmt.Sprintf("%v (epoch %d)", e.Kind, e.Epoch)
	switch {
	case e.Err == nil:
	case errors.Is(e.Kind, ErrExpired):
		s += ": " + contact.Brief(e.Err) // each heartbeat that failed was logged in full
	default:
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Kind and Err.
func (e *TermError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// lost reports whether the term ended against its leader's will.
func (e *TermError) lost() bool { return e != nil && !errors.Is(e.Kind, ErrResigned) }

// expiredError is a refused heartbeat of a lock that somebody else has expired. That says more
// than the refusal.
type expiredError struct {
	reason, by string
	err        error
}

func (e *expiredError) Error() string { return fmt.Sprintf("%s, by %s", e.reason, e.by) }
func (e *expiredError) Unwrap() error { return e.err }
