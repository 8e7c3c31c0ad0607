package kubelock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
)

// maxText is the longest name and identity, in bytes.
const maxText = 512

// Options of a [Lock]. The zero value works, and so does nil.
type Options struct {
	// Identity names this process in the record. By default it is the host name, "_" and a UUID.
	// No two processes may have the same one at the same time: client-go would take the other's
	// record for its own.
	Identity string
	// RequestTimeout bounds each step of a call: a read, a write, or the draw of an epoch. Default
	// 3 s, for client-go's usual 15, 10 and 2 s. It should be at most LeaseDuration −
	// RenewDeadline − RetryPeriod, because client-go counts a lease from the answer and not from
	// the request.
	RequestTimeout time.Duration
	// Clock is the machine's by default.
	Clock clock.Clock
	// Hooks are called when something happens.
	Hooks Hooks
}

// Hooks are called when something happens. Each may be nil.
type Hooks struct {
	// Event: client-go reports "became leader" or "stopped leading". It is called in the
	// elector's goroutine, which must not wait for long.
	Event func(Event)
}

// Event is the event of [Hooks].Event.
type Event struct {
	Identity string
	// Text is client-go's.
	Text string
	// Epoch is that of the term.
	Epoch fence.Epoch
}

// Validate returns an error that joins all faults of o; each is [ErrOptions]. [New] calls it.
func (o *Options) Validate() error {
	if o == nil {
		return nil
	}
	var bad []error
	if o.RequestTimeout < 0 {
		bad = append(bad, fmt.Errorf("%w: RequestTimeout is %v; it must not be negative", ErrOptions, o.RequestTimeout))
	}
	if n := len(o.Identity); n > maxText {
		bad = append(bad, fmt.Errorf("%w: Identity has %d bytes; at most %d fit", ErrOptions, n, maxText))
	}
	return errors.Join(bad...)
}

// ownIdentity is like that of controller-runtime.
func ownIdentity() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host[:min(len(host), 255)] + "_" + uuid.NewString()
}

func checkName(name string) error {
	switch {
	case name == "" || strings.HasSuffix(name, "/"):
		return fmt.Errorf("%w: the name is %q; it must name a lock, such as \"orders\"", ErrOptions, name)
	case len(name) > maxText:
		return fmt.Errorf("%w: the name has %d bytes; at most %d fit", ErrOptions, len(name), maxText)
	}
	return nil
}
