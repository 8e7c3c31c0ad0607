package lock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
)

const (
	// DefaultValidity is 15 s.
	DefaultValidity = 15 * time.Second
	minValidity     = 100 * time.Millisecond
	maxValidity     = time.Hour
	maxText         = 512 // bytes of a name and of an identity
)

// Options of [New]. The zero value works, and so does nil.
type Options struct {
	// Identity names this process, for people: 1 to 512 bytes of UTF-8. Default: host name, process id and a UUID.
	Identity string
	// Validity is how long the locks of this process hold without a heartbeat. After a crash others wait so long.
	// Whole milliseconds, 100 ms to 1 h; default 15 s. Processes may differ: the holder's counts. Heartbeats come each
	// 2/5 of it, and the holder itself stops a tenth before its end.
	Validity time.Duration
	// Clock is the machine's by default.
	Clock clock.Clock
	// Random draws pauses: a number in [0, 1), safe for concurrent use. By default another one every time.
	Random func() float64
}

// Validate returns an error that joins all faults of o; each is [ErrOptions]. [New] calls it.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var bad []error
	if v := o.Validity; v != 0 && (v < minValidity || v > maxValidity || v%time.Millisecond != 0) {
		bad = append(bad, fmt.Errorf("%w: Validity is %v; it must be whole milliseconds from %v to %v", ErrOptions, v, minValidity, maxValidity))
	}
	if len(o.Identity) > maxText || !utf8.ValidString(o.Identity) {
		bad = append(bad, fmt.Errorf("%w: Identity must be at most %d bytes of UTF-8", ErrOptions, maxText))
	}
	return errors.Join(bad...)
}

func (o *Options) random() float64 {
	if o.Random != nil {
		return o.Random()
	}
	return rand.Float64()
}

func (o *Options) renew() time.Duration { return o.Validity * 2 / 5 }

// lease is how long a holder believes that it holds, from before a heartbeat was sent.
//
// guard:lock-rate. A holder stops a tenth of the validity before its end, because clocks may differ in rate.
//
//mutant:replace o.Validity - o.Validity/10 => o.Validity + o.Validity/10
func (o *Options) lease() time.Duration { return o.Validity - o.Validity/10 }

// request bounds one attempt of a request.
func (o *Options) request() time.Duration { return o.Validity / 5 }

func checkName(name string) error {
	if name == "" || len(name) > maxText || !utf8.ValidString(name) {
		return fmt.Errorf("%w: the name %.64q: it must have 1 to %d bytes of UTF-8", ErrOptions, name, maxText)
	}
	return nil
}

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
