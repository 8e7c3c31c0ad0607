package faultstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// Store is one client of a faulty store. It is safe for concurrent use.
type Store struct {
	*shared
	name string

	nClient atomic.Int64
	dead    chan struct{} // closed by Crash
	dying   sync.Once

	pauseMu sync.Mutex
	paused  chan struct{} // closed when the pause is over; nil if there is none
}

// shared is what the clients of one faulty store have in common.
type shared struct {
	inner store.Store
	opts  Options // only Hook, Rates, Before and After change, under mu

	mu     sync.Mutex
	n      int
	counts Counts
	log    latest
	late   []*parked
	parks  int // numbers the late requests

	open atomic.Int64 // bodies that nobody has closed
}

var _ store.Store = (*Store)(nil)

// New wraps inner and returns its first client, whose name is empty. It panics if the
// options are invalid, which is a mistake of the test.
func New(inner store.Store, opts *Options) *Store {
	if err := opts.Validate(); err != nil {
		panic(err)
	}
	o := opts.withDefaults()
	sh := &shared{inner: inner, opts: o, counts: Counts{}, log: latest{max: o.LogSize}}
	return sh.client("")
}

// Client returns a further client of the same faulty store. It works even if s has crashed.
func (s *Store) Client(name string) *Store { return s.client(name) }

func (sh *shared) client(name string) *Store {
	return &Store{shared: sh, name: name, dead: make(chan struct{})}
}

// SetHook replaces Options.Hook, for all clients.
func (sh *shared) SetHook(h Hook) { sh.set(func(o *Options) { o.Hook = h }) }

// SetRates replaces Options.Rates, for all clients.
func (sh *shared) SetRates(r Rates) { sh.set(func(o *Options) { o.Rates = r }) }

// SetBefore replaces Options.Before, for all clients.
func (sh *shared) SetBefore(f func(context.Context, Op)) { sh.set(func(o *Options) { o.Before = f }) }

// SetAfter replaces Options.After, for all clients.
func (sh *shared) SetAfter(f func(context.Context, Op, error)) {
	sh.set(func(o *Options) { o.After = f })
}

func (sh *shared) set(change func(*Options)) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	change(&sh.opts)
}

func (sh *shared) script() Options {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.opts
}

// OpenBodies returns how many bodies of Get are open. If there are some at the end of a
// test, the code under test leaks them.
func (sh *shared) OpenBodies() int { return int(sh.open.Load()) }

// Crash makes this client a dead process. Requests that wait for something end at once. A
// request that is being applied is applied, and its reply is lost. Later requests never
// reach the store. Late requests that were sent before may still land.
//
// Requests in flight end with an error of unknown outcome, later ones with
// [store.ErrDenied], so that retries end. All these errors are [ErrCrashed].
func (s *Store) Crash() { s.dying.Do(func() { close(s.dead) }) }

// Crashed reports whether the client is dead.
func (s *Store) Crashed() bool {
	select {
	case <-s.dead:
		return true
	default:
		return false
	}
}

// Pause freezes this client, as SIGSTOP does, until resume is called: no request leaves it
// and no reply reaches it. A request whose context ends returns. A second Pause before
// resume is the same one.
func (s *Store) Pause() (resume func()) {
	s.pauseMu.Lock()
	defer s.pauseMu.Unlock()
	if s.paused == nil {
		s.paused = make(chan struct{})
	}
	gate := s.paused
	return func() {
		s.pauseMu.Lock()
		defer s.pauseMu.Unlock()
		if s.paused == gate {
			close(gate)
			s.paused = nil
		}
	}
}

// wait blocks until ready is closed; a nil one is ready.
func (s *Store) wait(ctx context.Context, op Op, ready <-chan struct{}) error {
	if ready != nil {
		select {
		case <-ready:
		case <-s.dead:
		case <-ctx.Done():
		}
	}
	return s.alive(ctx, op)
}

func (s *Store) alive(ctx context.Context, op Op) error {
	if s.Crashed() {
		return &store.Error{Op: string(op.Kind), Key: op.Key, Err: ErrCrashed}
	}
	if err := ctx.Err(); err != nil {
		if cause := context.Cause(ctx); !errors.Is(cause, err) {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return &store.Error{Op: string(op.Kind), Key: op.Key, Err: err}
	}
	return nil
}

// gate waits for the end of a pause.
func (s *Store) gate(ctx context.Context, op Op) error {
	s.pauseMu.Lock()
	paused := s.paused
	s.pauseMu.Unlock()
	return s.wait(ctx, op, paused)
}

// travel waits for what a request meets on one way: a delay, a hold, a pause.
func (s *Store) travel(ctx context.Context, op Op, c clock.Clock, d time.Duration, hold <-chan struct{}) error {
	if d > 0 {
		passed := make(chan struct{})
		t := c.AfterFunc(d, func() { close(passed) })
		err := s.wait(ctx, op, passed)
		t.Stop()
		if err != nil {
			return err
		}
	}
	if err := s.wait(ctx, op, hold); err != nil {
		return err
	}
	return s.gate(ctx, op)
}

// request is one request on its way through the stations: see the package comment.
type request struct {
	op    Op
	fault Fault
	// apply sends the request to the inner store, at most once.
	apply func(context.Context) error
	// again is what a late copy does; nil for reads.
	again func(context.Context) error
}

// begin takes a request to the point where it would be applied.
func (s *Store) begin(ctx context.Context, op Op) (*request, Options, error) {
	if s.Crashed() {
		return nil, Options{}, &store.Error{Op: string(op.Kind), Key: op.Key, Kind: store.ErrDenied, Err: ErrCrashed}
	}
	if err := s.gate(ctx, op); err != nil {
		return nil, Options{}, err
	}
	op.Client = s.name
	op.ClientN = int(s.nClient.Add(1))
	s.mu.Lock()
	s.n++
	op.N = s.n
	s.counts.add(op)
	s.mu.Unlock()

	o := s.script()
	if o.Before != nil {
		o.Before(ctx, op)
		o = s.script() // Before may have changed the script
	}
	r := &request{op: op}
	if o.Hook != nil {
		r.fault = o.Hook(op)
	}
	if r.fault == (Fault{}) {
		r.fault = o.Rates.draw(op, o.random(op))
	}
	if op.Kind == Put || op.Kind == Delete {
		r.fault.Cut = false // there is nothing to cut
	}
	if r.fault.Drop && r.fault.Err == nil {
		r.fault.Err = ErrReset
	}
	s.mu.Lock()
	s.log.add(Entry{Op: op, Fault: r.fault})
	s.mu.Unlock()

	err := s.travel(ctx, op, o.Clock, r.fault.Delay, r.fault.Hold)
	return r, o, err
}

// do takes a request through all stations and returns the error that the caller gets.
func (s *Store) do(ctx context.Context, op Op, fill func(*request)) error {
	r, o, err := s.begin(ctx, op)
	if r == nil {
		return err
	}
	if err == nil {
		fill(r)
		err = s.serve(ctx, r, &o)
	}
	s.mu.Lock()
	s.log.finish(r.op.N, err)
	s.mu.Unlock()
	if o.After != nil {
		o.After(ctx, r.op, err)
	}
	return err
}

func (s *Store) serve(ctx context.Context, r *request, o *Options) error {
	s.Land(ctx)
	f := &r.fault
	if f.Late != nil && r.again != nil {
		s.park(r)
	}
	var reply error
	if !f.Drop {
		reply = r.apply(ctx)
	}
	if f.Crash {
		s.Crash()
	}
	if err := s.travel(ctx, r.op, o.Clock, f.ReplyDelay, f.HoldReply); err != nil {
		return err
	}
	if f.Hang {
		return s.wait(ctx, r.op, make(chan struct{}))
	}
	if f.Err != nil && (f.Drop || !f.Cut) {
		return addressed(f.Err, r.op)
	}
	return reply
}
