// Package contact is the first contact with a store, before work that would retry in silence for minutes, and a few
// words about a request that failed.
package contact

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

var errNoContact = errors.New("no contact in time")

// Options describe one [Reach]. Nil works like the zero value.
type Options struct {
	// Timeout bounds the whole call, default 10 s. Negative: only the context does.
	Timeout time.Duration
	// Every is how often Waiting is called, default 5 s.
	Every time.Duration
	// Waiting is called while the store does not answer.
	Waiting func(Waiting)
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Validate returns what is wrong with the options, a [store.ErrInvalid], as [Reach] does. nil is
// valid.
func (o *Options) Validate() error {
	if o != nil && o.Every < 0 {
		return fmt.Errorf("%w: Options.Every is %v; it must not be negative", store.ErrInvalid, o.Every)
	}
	return nil
}

// Waiting says for which store [Reach] waits, and why. Its String is a line for people.
type Waiting struct {
	// Store is where the store is: see [store.Traits.Where].
	Store string
	// For is how long Reach has tried, Left how long it will; 0 if there is no bound.
	For, Left time.Duration
	// Err is what the last attempt ended with; nil if the first one still waits.
	Err error
}

// String says whom the caller waits for, how long already, why, and how long at most.
func (w Waiting) String() string {
	s := fmt.Sprintf("%s has not answered for %v", w.Store, w.For.Round(time.Second))
	s += inBrackets(w.Err)
	if w.Left > 0 {
		s += fmt.Sprintf("; trying for %v more", w.Left.Round(time.Second))
	}
	return s
}

// Brief says in a few words why a request failed, for a line that names the store already:
// "connection refused", "no answer within 3s", "status 503 SlowDown".
func Brief(err error) string {
	var number syscall.Errno
	var name *net.DNSError
	var late silence
	var answer *store.Error
	switch {
	case errors.As(err, &late):
		return fmt.Sprintf("no answer within %v", late.NoAnswer())
	case errors.As(err, &number):
		return number.Error()
	case errors.As(err, &name):
		return name.Error()
	case errors.As(err, &answer) && answer.Status != 0:
		return strings.TrimSpace(fmt.Sprintf("status %d %s", answer.Status, answer.Code))
	}
	return err.Error()
}

// silence is the error of a request that the store did not answer in time.
type silence interface {
	error
	NoAnswer() time.Duration
}

// inBrackets is Brief in parentheses, for a line that says already that there is no answer.
func inBrackets(err error) string {
	if err == nil || errors.Is(err, errNoContact) || errors.As(err, new(silence)) {
		return ""
	}
	return " (" + Brief(err) + ")"
}

// unreachableError is [store.ErrUnreachable], and what the last attempt ended with.
type unreachableError struct {
	where string
	after time.Duration
	err   error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("%v: %s did not answer within %v%s: check the address, and that the server runs", store.ErrUnreachable, e.where, e.after, inBrackets(e.err))
}

func (e *unreachableError) Unwrap() []error { return []error{store.ErrUnreachable, e.err} }

// Reach waits until the store answers a read of key, and returns nil then, also if there is
// no such object. Call it before work that would retry in silence for minutes.
//
// Errors: [store.ErrUnreachable], with the last failure, if the store does not answer in time; an
// error that is [store.Permanent], such as store.ErrDenied; ctx's cause, with the last failure. It costs one GET of one byte.
func Reach(ctx context.Context, st store.Store, key string, opts *Options) error {
	if err := opts.Validate(); err != nil {
		return err
	}
	if store.IsNil(st) {
		return &store.Error{Op: "reach", Key: key, Kind: store.ErrInvalid, Hint: "the store is nil"}
	}
	o := *cmp.Or(opts, &Options{})
	o.Timeout, o.Every, o.Clock = cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.Every, 5*time.Second), clock.Or(o.Clock)
	w := Waiting{Store: st.Traits().Where()}
	began := o.Clock.Now()
	within := ctx
	attempt := o.Every * 4 / 5
	if o.Timeout > 0 {
		var cancel context.CancelFunc
		within, cancel = clock.WithTimeout(ctx, o.Clock, o.Timeout, errNoContact)
		defer cancel()
		attempt = min(attempt, o.Timeout/2)
	}
	tried := make(chan error)
	var last atomic.Pointer[error] // the newest failure
	settle := &store.SettleOptions{Attempt: attempt, Reads: 1 << 30, Clock: o.Clock, Retrying: func(err error) { last.Store(&err) }}
	go func() {
		tried <- store.Retry(within, settle, func(ctx context.Context) error { return touch(ctx, st, key) })
	}()
	failure := func() error {
		if err := last.Load(); err != nil {
			return *err
		}
		return nil
	}
	for {
		tick := make(chan struct{})
		timer := o.Clock.AfterFunc(o.Every, func() { close(tick) })
		select {
		case err := <-tried:
			timer.Stop()
			w.Err = cmp.Or(failure(), err)
			return o.verdict(ctx, w, err)
		case <-tick:
			w.Err = failure()
			w.For = o.Clock.Now().Sub(began)
			if o.Timeout > 0 {
				w.Left = o.Timeout - w.For
			}
			// At the very end the error says it.
			if o.Waiting != nil && (o.Timeout < 0 || w.Left > 0) {
				o.Waiting(w)
			}
		}
	}
}

// touch makes the smallest request.
func touch(ctx context.Context, st store.Store, key string) error {
	obj, err := st.Get(ctx, key, &store.GetOptions{Length: 1})
	if err == nil {
		_ = obj.Body.Close()
	}
	return err
}

// verdict is what Reach returns when the attempts have ended with err.
func (o *Options) verdict(ctx context.Context, w Waiting, err error) error {
	switch {
	case err == nil, errors.Is(err, store.ErrNotFound), errors.Is(err, store.ErrRange):
		return nil
	case ctx.Err() != nil:
		if cause := context.Cause(ctx); w.Err == nil || errors.Is(w.Err, cause) || errors.Is(w.Err, ctx.Err()) {
			return cause
		}
		return fmt.Errorf("%w (%s has failed: %w)", context.Cause(ctx), w.Store, w.Err)
	case store.Permanent(err):
		return err
	}
	return &unreachableError{where: w.Store, after: o.Timeout, err: w.Err}
}
