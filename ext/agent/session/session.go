package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

const (
	// unread is how long a client may take to read an event.
	unread = 15 * time.Second
	// settling is how long the outcome of what is in flight may take at the end.
	settling = 15 * time.Second
	// inFlight is how many messages wait for their outcome.
	inFlight = 1 << 15
	// troubled is how long the store is silent until the client is told, and then again.
	troubled = 5 * time.Second
)

// Options of a session. The zero value works.
type Options struct {
	// Promise is how long the client is silent at most. After that it loses the term. 0: it may be silent for ever.
	Promise time.Duration
	// NoWait ends the session with ErrBusy if another process leads.
	NoWait bool
	// Upload makes a file of the table, which the writer has not committed yet. nil: this carrier has none.
	Upload func(ctx context.Context, w *writer.Writer, name string, values map[string]string) (manifest.File, error)
	// Began is told the term of Lead. What it returns is called at the term's end.
	Began func(s *fencepost.Session) (ended func())
	// Clock is the machine's by default.
	Clock clock.Clock
}

// Validate returns what is wrong with the options, as an [ErrOptions].
func (o *Options) Validate() error {
	if o.Promise < 0 || o.Promise > 0 && o.Promise < time.Second {
		return fmt.Errorf("%w: Promise %v must be 1 s or more, or 0 for no promise", ErrOptions, o.Promise)
	}
	return nil
}

// Session is one client and its term. Call [Session.Lead] or [Session.Work] once.
type Session struct {
	client Client
	opts   Options
	clock  clock.Clock
	out    outbox
	cancel context.CancelCauseFunc

	in      chan Message
	inErr   error        // why in is closed; nil: the client is done
	led     atomic.Bool  // the term has begun
	heard   atomic.Int64 // when the client was heard last
	listens atomic.Bool  // it is the client's turn: no message waits to be taken
	mu      sync.Mutex
	failing map[string]clock.Instant // since when the store fails, or the client was told of it, by operation
	failure error                    // why the session ends before its term does
	failed  chan struct{}            // closed then

	cursor []byte // of the last message
	result error
}

// New returns a session of a client.
func New(c Client, o *Options) *Session {
	s := &Session{client: c, in: make(chan Message), failing: map[string]clock.Instant{}, failed: make(chan struct{})}
	if o != nil {
		s.opts = *o
	}
	s.clock = clock.Or(s.opts.Clock)
	s.out.init()
	return s
}

// Lead waits until this process leads the log in st, and serves the client for one term. It returns nil if the
// client is done, and everything that it has sent is in the history; an [EndError] otherwise. The client has been told
// by then. If ctx ends, the client loses the term within the bounds of fencepost.Run.
func (s *Session) Lead(ctx context.Context, st store.Store, o *fencepost.Options) error {
	return s.serve(ctx, func(run context.Context) error {
		opts := fencepost.Options{}
		if o != nil {
			opts = *o
		}
		elect := leader.Options{}
		if opts.Leader != nil {
			elect = *opts.Leader
		}
		if elect.Identity == "" {
			elect.Identity = leader.DefaultIdentity()
		}
		told := elect.Hooks.Leader
		elect.Hooks.Leader = func(r leader.Record) {
			s.meets(r, elect.Identity)
			if told != nil {
				told(r)
			}
		}
		opts.Leader = &elect
		worked := false
		err := fencepost.Run(run, store.Hooked(st, store.Hooks{Answered: s.answered}, s.clock), &opts, func(ctx context.Context, w *fencepost.Session) error {
			worked = true
			if s.opts.Began != nil {
				defer s.opts.Began(w)()
			}
			s.result = s.work(ctx, w.Writer, w.Resign)
			// guard:one-term. A session ends with its term: it appends nothing in a later one.
			//
			//mutant:replace s.cancel(errDone) => _ = errDone
			s.cancel(errDone)
			return s.result
		})
		if worked {
			return s.result
		}
		if cause := context.Cause(run); cause != nil {
			err = cause
		}
		return s.ended(err, 0, 0)
	})
}

// Work serves the client with a writer that the caller has opened, and closes when Work has returned. It returns what
// Lead returns.
func (s *Session) Work(ctx context.Context, w *writer.Writer) error {
	return s.serve(ctx, func(run context.Context) error {
		s.result = s.work(run, w, func() { s.cancel(leader.ErrResigned) })
		return s.result
	})
}

// serve runs the carrier around do.
func (s *Session) serve(ctx context.Context, do func(ctx context.Context) error) error {
	if err := s.opts.Validate(); err != nil {
		return &EndError{Code: CodeInvalid, Err: err}
	}
	run, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s.cancel = cancel
	var parts sync.WaitGroup
	parts.Go(s.receive)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		s.out.drain(s.send)
	}()
	stop := context.AfterFunc(ctx, func() { s.out.put(Event{Kind: Draining}) })
	err := do(run)
	stop()
	s.tell(err)
	s.client.Stop()
	for range s.in { // nobody takes what has come since
	}
	parts.Wait()
	// A client that does not read must not keep the caller.
	wait, stopWait := clock.WithTimeout(context.Background(), s.clock, unread, nil)
	defer stopWait()
	select {
	case <-sent:
	case <-wait.Done():
	}
	return err
}

// tell ends the events.
func (s *Session) tell(err error) {
	e := Event{Kind: Ended, End: s.out.end()}
	if end, ok := errors.AsType[*EndError](err); ok {
		e.Code, e.Why, e.Unknown, e.NotCommitted = end.Code, end.Error(), end.Unknown, end.NotCommitted
		if end.Code != CodeStopped || end.Unknown+end.NotCommitted > 0 {
			e.Kind = Lost
		}
	}
	s.out.close(e)
}

// send tells the client, which must read within a time.
func (s *Session) send(e Event) bool {
	t := s.clock.AfterFunc(unread, func() {
		s.fail(fmt.Errorf("%w: it has not read an event for %v; let it read while it sends", ErrUnread, unread))
		s.out.abandon()
	})
	defer t.Stop()
	if err := s.client.Send(e); err != nil {
		s.fail(fmt.Errorf("%w: %w", errGone, err))
		return false
	}
	return true
}

// fail ends the session, and with it the term.
func (s *Session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
		close(s.failed)
	}
	s.cancel(err)
}

// receive takes what the client sends until it is done.
func (s *Session) receive() {
	defer close(s.in)
	for first := true; ; {
		s.heard.Store(int64(s.clock.Now()))
		s.listens.Store(true)
		m, err := s.client.Receive()
		s.listens.Store(false)
		s.heard.Store(int64(s.clock.Now()))
		switch {
		case errors.Is(err, io.EOF):
		case errors.Is(err, ErrInvalid):
			s.inErr = err
		case err != nil:
			s.inErr = fmt.Errorf("%w: %w", errGone, err)
		}
		if err != nil {
			// A client that has sent something waits for its outcome, also at the end of its input.
			if cut := s.inErr != nil; cut && !s.led.Load() || first {
				if cut {
					s.fail(s.inErr)
				} else {
					s.cancel(errDone)
				}
			}
			return
		}
		if m.alive() {
			continue
		}
		first = false
		s.in <- m
	}
}

// meets tells the client for whom it waits.
func (s *Session) meets(r leader.Record, self string) {
	if r.Holder == self || !r.Leads() {
		return
	}
	if s.opts.NoWait {
		s.fail(fmt.Errorf("%w: %s, in epoch %d since %s; ask there, or let this client wait", ErrBusy, r.Holder, r.Epoch, r.Acquired.UTC().Format(time.RFC3339)))
		return
	}
	s.out.put(Event{Kind: Waiting, Holder: r.Holder, Epoch: r.Epoch, Until: s.clock.Wall().Add(r.Validity)})
}

// answered tells a client that waits why the store does not work. A full disk still answers reads.
func (s *Session) answered(a store.Answer) {
	e, failed := errors.AsType[*store.Error](a.Err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Err == nil || failed && e.Kind != nil && !errors.Is(e, store.ErrDenied) || errors.Is(a.Err, context.Canceled) {
		delete(s.failing, a.Op)
		return
	}
	now := s.clock.Now()
	if since, ok := s.failing[a.Op]; !ok {
		s.failing[a.Op] = now
	} else if now.Sub(since) >= troubled {
		s.failing[a.Op] = now
		s.out.put(Event{Kind: Trouble, Why: "the store does not work, and is tried again: " + a.Err.Error()})
	}
}

// inOrder refuses a cursor that is a lower number than the one before.
//
// guard:cursor-order. A cursor that is a decimal number is not below the one before it, which the history or this session has.
//
//mutant:replace now < was => false
func (s *Session) inOrder(c []byte) error {
	was, err := strconv.ParseUint(string(s.cursor), 10, 64)
	if err != nil {
		return nil //nolint:nilerr // no number
	}
	now, err := strconv.ParseUint(string(c), 10, 64)
	if err == nil && now < was {
		return fmt.Errorf("%w: the cursor %d comes after %d, which the log has already or was sent before; continue after the cursor of the event leading. Cursors that are numbers must not go down", ErrInvalid, now, was)
	}
	return nil
}

// ended is the result of the session.
func (s *Session) ended(err error, unknown, refused int) error {
	if end, ok := errors.AsType[*EndError](err); ok { // of the message that could not be appended
		err, refused = end.Err, refused+end.NotCommitted
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure != nil {
		err = s.failure
	}
	if (err == nil || errors.Is(err, errDone)) && unknown+refused == 0 {
		return nil
	}
	if err == nil {
		err = errors.New("session: the writer has ended")
	}
	return &EndError{Code: codeOf(err), Unknown: unknown, NotCommitted: refused, Err: err}
}

// leading is the first event of a term.
func leading(w *writer.Writer) Event {
	r := w.Recovered()
	return Event{Kind: Leading, Epoch: r.Epoch, Cursor: r.Cursor, First: r.Offset, End: r.Offset}
}
