package leader

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
)

// A term is over for one of these causes; each is an [ErrLost]. They are the
// cause of the term's context (context.Cause), and latch: a term that is over
// stays over.
var (
	// ErrLost: the term is over, for whatever cause.
	ErrLost = errors.New("leader: the term is over")
	// ErrExpired: no heartbeat got through before the leader's own deadline.
	ErrExpired error = &cause{"leader: the term expired", ErrLost}
	// ErrDeposed: a heartbeat was refused, since the lock was swapped by a
	// successor or an operator.
	ErrDeposed error = &cause{"leader: deposed", ErrLost}
	// ErrStalled: the work gave no sign of progress for Options.StallAfter.
	ErrStalled error = &cause{"leader: the work stalled", ErrLost}
	// ErrResigned: the leader left of its own will.
	ErrResigned error = &cause{"leader: resigned", ErrLost}
	// ErrHandedOver: the leader left in favour of another. It is an ErrResigned.
	ErrHandedOver error = &cause{"leader: handed over", ErrResigned}
)

var (
	// ErrShort: [Term.Check] found less time than is needed. The term is not over.
	ErrShort = errors.New("leader: less time remains than is needed")
	// ErrNoLeader: the newest lock is expired, or long not renewed, or there is
	// none.
	ErrNoLeader = errors.New("leader: nobody leads")
	// ErrBusy: this elector is campaigning or leading already.
	ErrBusy = errors.New("leader: this elector is campaigning or leading already")
	// ErrOptions: options that cannot work. The error shows the arithmetic.
	ErrOptions = errors.New("leader: invalid options")
	// ErrFormat: a lock was written by a newer version of this project.
	ErrFormat = errors.New("leader: unknown lock format")
	// ErrJunk: the newest lock is not what an elector writes.
	ErrJunk = errors.New("leader: the newest lock is unreadable")
	// ErrInconsistent: the store does not list what it has stored, or no number
	// is left. No election is possible on it.
	ErrInconsistent = errors.New("leader: no election possible")
	// ErrNotReleased: the term is over but its lock could not be swapped; it
	// lapses by itself.
	ErrNotReleased = errors.New("leader: the lock could not be released and will lapse")
)

type cause struct {
	text   string
	parent error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.parent }

// TermError says which term ended and how. It is the cause of the term's
// context and unwraps to one of the causes above, such as [ErrExpired].
type TermError struct {
	Epoch fence.Epoch
	// Kind is one of the causes.
	Kind error
	// Err is what led to it: the last failed heartbeat, the cancelled context
	// given to Run; may be nil.
	Err error
}

func (e *TermError) Error() string {
	s := fmt.Sprintf("%v (epoch %d)", e.Kind, uint64(e.Epoch))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the kind and what led to it.
func (e *TermError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// lost tells whether the term ended against its leader's will.
func (e *TermError) lost() bool { return e != nil && !errors.Is(e.Kind, ErrResigned) }
