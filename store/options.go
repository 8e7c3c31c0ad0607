package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// SettleOptions tune the retries of [Create], [Swap], [Read], [ListAll] and
// [DeleteAll]. Nil works like the zero value.
type SettleOptions struct {
	// Attempt bounds one request, default 30 s. The context bounds the whole call. For each request
	// that timed out, the next one of this call may take twice as long, up to what its bytes take at
	// 16 KiB/s more: a slow line keeps no large object out for ever.
	Attempt time.Duration
	// Backoff is the longest pause after the first failure, default 20 ms. It doubles
	// with each failure up to MaxBackoff, default 2 s. Each pause is drawn evenly from
	// the upper half. If the store asks for a longer pause it gets that, up to a minute.
	Backoff, MaxBackoff time.Duration
	// Reads is how often a read is tried before its error is returned, default 8. The
	// reads that settle a write go on until the context ends.
	Reads int
	// Clock is the machine's by default.
	Clock clock.Clock
	// Random draws the pauses: a number in [0, 1), by default another one every
	// time. It must be safe for concurrent use.
	Random func() float64
	// Retrying is called after each failure that will be retried, before the pause.
	Retrying func(err error)
}

// Validate returns what is wrong with the options, an [ErrInvalid], as every function
// does that takes them. It does no I/O; nil is valid.
func (o *SettleOptions) Validate() error {
	if o == nil {
		return nil
	}
	var bad []error
	for name, v := range map[string]time.Duration{"Attempt": o.Attempt, "Backoff": o.Backoff, "MaxBackoff": o.MaxBackoff} {
		if v < 0 {
			bad = append(bad, fmt.Errorf("%w: SettleOptions.%s is %v; it must not be negative", ErrInvalid, name, v))
		}
	}
	if o.Reads < 0 {
		bad = append(bad, fmt.Errorf("%w: SettleOptions.Reads is %d; it must not be negative", ErrInvalid, o.Reads))
	}
	return errors.Join(bad...)
}

// WriteOptions describe one write of [Create] or [Swap]. Nil works like the zero value.
type WriteOptions struct {
	// Settle tunes the retries.
	Settle *SettleOptions
	// Identity is how many leading bytes of the body tell it from every other body that
	// is ever written under its key; 0 means all of them. Every body holds a random
	// nonce. A large body has it in its header, so that Create need not read megabytes
	// back.
	Identity int
	// CRC32C is the checksum of the body, if the caller knows it: see [PutOptions].
	CRC32C *uint32
	// Hedge lets [Create] send its request a second time when the first is late; nil
	// means never. Swaps are not hedged.
	Hedge *Hedge
	// Overtaken is closed when others wait for this write, for instance because one that was sent
	// after it is answered already. Then the Hedge sends it again at once, if it knows what is late.
	// It may be closed from the beginning. Nil means never.
	Overtaken <-chan struct{}
	// Clean, if it is not nil, is set before the call returns: whether the write took one request, which
	// was answered, so that no copy of it can land later. A caller of [Swap] needs that if it relies on
	// the version for long while others may delete the object: a late copy of the create and then one of
	// the swap may both land after the delete, and bring the version back.
	Clean *bool
}

// settings are SettleOptions in which nothing is left out.
type settings SettleOptions

func (o *SettleOptions) settings() (settings, error) {
	var v settings
	if o != nil {
		v = settings(*o)
	}
	v.Attempt = cmp.Or(v.Attempt, 30*time.Second)
	v.Backoff = cmp.Or(v.Backoff, 20*time.Millisecond)
	v.MaxBackoff = cmp.Or(v.MaxBackoff, 2*time.Second)
	v.Reads = cmp.Or(v.Reads, 8)
	v.Clock = clock.Or(v.Clock)
	if v.Random == nil {
		v.Random = rand.Float64
	}
	if min(v.Attempt, v.Backoff, v.MaxBackoff) < 0 || v.Reads < 0 {
		return v, o.Validate()
	}
	return v, nil
}

var errAttemptTimeout = errors.New("store: no answer in time")

// patience is what the requests of one call share. It is safe for concurrent use.
type patience struct {
	size     int64        // how many bytes a request sends or awaits
	timeouts atomic.Int32 // so far
}

// slowest is the slowest line for which a request's time limit grows, in bytes a second.
const slowest = 16 << 10

// attempt runs one request under its own time limit.
func (s *settings) attempt(ctx context.Context, p *patience, f func(context.Context) error) error {
	limit := s.Attempt
	for range p.timeouts.Load() {
		// If 16 objects of 4 MiB share a line of 800 KB/s, each needs 84 s. Cut off after 30 s,
		// again and again, none of them ever gets through.
		longer := min(2*limit, s.Attempt+time.Duration(min(p.size/slowest, 1<<20))*time.Second)
		if longer == limit {
			break
		}
		limit = longer
	}
	ctx, cancel := clock.WithTimeout(ctx, s.Clock, limit, errAttemptTimeout)
	defer cancel()
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errAttemptTimeout) {
		p.timeouts.Add(1)
		return &timeoutError{after: limit, err: err}
	}
	return err
}

// timeoutError is a request that got no answer in time. What the driver says of that is only
// that its context has ended, so it is not repeated.
type timeoutError struct {
	after time.Duration
	err   error
}

func (e *timeoutError) Error() string {
	if d, ok := errors.AsType[*Error](e.err); ok {
		return fmt.Sprintf("store: %s %q: no answer within %v", d.Op, d.Key, e.after)
	}
	if errors.Is(e.err, context.Canceled) {
		return fmt.Sprintf("store: no answer within %v", e.after)
	}
	return fmt.Sprintf("store: no answer within %v: %v", e.after, e.err)
}

// NoAnswer returns how long the request has waited. Package outage finds it by this method.
func (e *timeoutError) NoAnswer() time.Duration { return e.after }

func (e *timeoutError) Unwrap() []error { return []error{errAttemptTimeout, e.err} }

// pause waits after n+1 failures, the last of which was err. It returns early, with
// the cause, if ctx ends.
func (s *settings) pause(ctx context.Context, n int, err error) error {
	if s.Retrying != nil && err != nil && ctx.Err() == nil {
		s.Retrying(err)
	}
	d := s.Backoff << min(n, 16)
	if d <= 0 || d > s.MaxBackoff {
		d = s.MaxBackoff
	}
	d = d/2 + time.Duration(s.Random()*float64(d/2+1))
	if e := (*Error)(nil); errors.As(err, &e) && e.RetryAfter > d {
		d = min(e.RetryAfter, time.Minute)
	}
	return clock.Sleep(ctx, s.Clock, d)
}
