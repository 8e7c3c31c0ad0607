package lock

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/fence"
)

var (
	// ErrHeld: somebody else holds the name. The error is a [HeldError].
	ErrHeld = errors.New("lock: held by somebody else")
	// ErrLost: the lock is not held any more, for any cause.
	ErrLost = errors.New("lock: not held any more")
	// ErrExpired: no heartbeat was applied before this process's own deadline.
	ErrExpired error = &cause{"lock: expired: no heartbeat was applied in time", ErrLost}
	// ErrDeposed: another process has found this one dead, and has taken its locks.
	ErrDeposed error = &cause{"lock: deposed: another process has expired this one's session", ErrLost}
	// ErrReleased: the holder has released the lock.
	ErrReleased error = &cause{"lock: released", ErrLost}
	// ErrShort: [Lock.Check] found less time than was asked for. The lock is still held.
	ErrShort = errors.New("lock: less time is left than is needed")
	// ErrNotReleased: nobody knows yet whether the lock is free. This process goes on trying to free it, until
	// [Locker.Close]. It lapses at the latest when this process has ended and the validity has passed.
	ErrNotReleased = errors.New("lock: not known to be released")
	// ErrClosed: the [Locker] was closed.
	ErrClosed error = &cause{"lock: the locker is closed", ErrLost}
	// ErrOptions: the options, the prefix or the name cannot work. The error lists all faults.
	ErrOptions = errors.New("lock: invalid options")
)

// cause is a sentinel that is another one too.
type cause struct {
	text string
	of   error
}

func (c *cause) Error() string { return c.text }
func (c *cause) Unwrap() error { return c.of }

// HeldError says who holds a name. It is [ErrHeld].
type HeldError struct {
	Name   string
	Holder string // its Options.Identity
	Token  fence.Token
	Since  time.Time // by the holder's time of day
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lock: %q is held by %s since %s (token %v)", e.Name, e.Holder, e.Since.Format(time.RFC3339), e.Token.Epoch())
}

// Is makes a HeldError an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
