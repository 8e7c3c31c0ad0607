package group

import (
	"errors"
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/ext/group/internal/member"
)

// The causes of an end, of a session or of the ownership of a partition. Each is also an
// [ErrLost]. They are the cause (context.Cause) of the work's context, inside an [EndError].
var (
	// ErrLost: the ownership is over, for any cause.
	ErrLost = errors.New("group: the ownership is over")
	// ErrExpired: no heartbeat was applied before the member's own deadline.
	ErrExpired error = &cause{"group: the session expired: no heartbeat was applied in time", ErrLost}
	// ErrDeposed: a heartbeat was refused, because somebody else has expired the member.
	ErrDeposed error = &cause{"group: deposed: somebody else has expired this member", ErrLost}
	// ErrBlind: the newest assignment could not be read for a validity.
	ErrBlind error = &cause{"group: the newest assignment could not be read in time", ErrLost}
	// ErrHung: the work on a partition did not return within Options.Drain of the end of its
	// context.
	ErrHung error = &cause{"group: work did not return in time after its context ended", ErrLost}
	// ErrMoved: the partition belongs to somebody else now.
	ErrMoved error = &cause{"group: the partition has moved", ErrLost}
	// ErrStalled: the work did not call [Partition.Progress] for Options.StallAfter.
	ErrStalled error = &cause{"group: the work stalled", ErrLost}
	// ErrLeft: this member has left of its own will.
	ErrLeft error = &cause{"group: left", ErrLost}
)

var (
	// ErrShort: [Partition.Check] found less time than was asked for. The ownership goes on.
	ErrShort = errors.New("group: the ownership has less time left than is needed")
	// ErrOptions: the options cannot work, or contradict those with which the group was created. The
	// error lists all faults.
	ErrOptions = errors.New("group: invalid options")
	// ErrNoGroup: there is no group in the store, and Options.Partitions is 0, so none is created.
	ErrNoGroup = errors.New("group: there is no group")
	// ErrNoMember: [Drain] found no such member, or its session is over.
	ErrNoMember = errors.New("group: there is no such member")
	// ErrAgain is returned by work that has done a round, and is to be opened again, with another token: after a second at first and
	// half a minute at most. It is no failure. Work that returns nil has nothing left to do.
	ErrAgain = errors.New("group: the work is to begin again")
	// ErrBusy: Run was called already. Join again for another session.
	ErrBusy = errors.New("group: Run was called already")
)

var (
	errHook  = errors.New("group: a hook has ended its goroutine (runtime.Goexit); hooks must return")
	errDrain = errors.New("group: the store did not settle all appends before the writer had to close")
)

// fieldError is what is wrong with a field: the faults of another package's options, one to a line, each under the
// field's name. It is [ErrOptions].
type fieldError struct {
	field string
	err   error
}

func (e *fieldError) Error() string {
	at := ErrOptions.Error() + ": " + e.field + ": "
	return at + strings.ReplaceAll(e.err.Error(), "\n", "\n"+at)
}

func (e *fieldError) Unwrap() []error { return []error{ErrOptions, e.err} }

// faults collects what is wrong with the fields of some options.
type faults []error

func (f *faults) add(field string, err error) {
	if err != nil {
		*f = append(*f, &fieldError{field, err})
	}
}

type cause struct {
	text   string
	parent error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.parent }

// EndError says what has ended and why. It unwraps to one of the causes above, such as
// [ErrExpired].
type EndError struct {
	// Member is the name of the session.
	Member string
	// Partition is the partition whose ownership ended, or -1: the session, with all partitions.
	Partition int
	// Kind is one of the causes.
	Kind error
	// Err is what led to it, or nil: the last failed request, for example.
	Err error
}

func (e *EndError) Error() string {
	s := fmt.Sprintf("%v (member %s", e.Kind, e.Member)
	if e.Partition >= 0 {
		s += fmt.Sprintf(", partition %d", e.Partition)
	}
	s += ")"
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns Kind and Err.
func (e *EndError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Err}
}

// kind gives a cause of the machine its public name; nil if it is no end of an ownership.
func kind(c member.Cause) error {
	switch c {
	case member.ByDeadline, member.ByLateJoin:
		return ErrExpired
	case member.ByOthers:
		return ErrDeposed
	case member.ByBlindness, member.ByDenial, member.ByDamage:
		return ErrBlind
	case member.ByHanging:
		return ErrHung
	case member.ByMoving:
		return ErrMoved
	case member.ByStalling:
		return ErrStalled
	case member.ByLeaving:
		return ErrLeft
	}
	return ErrLost
}
