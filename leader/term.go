package leader

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/sink"
)

// Term is one leadership, from the win to the end. It is safe for concurrent use.
type Term struct {
	e     *Elector
	epoch fence.Epoch
	clock clock.Clock
	began clock.Instant

	ctx    context.Context //nolint:containedctx // what Context returns; no request runs under it
	cancel context.CancelCauseFunc

	// deadline is when the term ends unless renewed, and longAgo once it is over.
	deadline atomic.Int64
	held     atomic.Int64 // until when the lock keeps successors out: see Held
	progress atomic.Int64
	over     atomic.Pointer[TermError]

	kick   chan struct{} // wakes the driver
	driver chan struct{} // holds a token while no goroutine drives
	exited chan struct{} // closed when the term's own driver has ended
	idle   chan struct{} // closed when the work has ended, after the term began to end
	told   chan struct{} // closed when Hooks.Ended has returned
	leaves chan struct{} // closed when the term begins to end by its leader's will

	releasing sync.Once
	released  chan struct{} // closed when the lock is released, or that was given up

	mu      sync.Mutex // never held across a request
	machine *lease.Leader
	timer   clock.Timer
	wake    clock.Instant // when timer fires
	todo    *lease.Write
	done    bool
	failed  error // the last failed write
	record  Record
	deposer string // the operator whose note the lock had
	life    life
	hailed  bool   // Hooks.Elected has returned, so Hooks.Ended may be called
	early   func() // calls it, if the term ended before
	close   string // the candidate that has seen the lock draining

	waiters []waiter
}

type waiter struct {
	after uint64 // it waits for a write numbered higher
	ok    chan struct{}
}

// longAgo is the deadline of a term that is over: it is before any instant.
const longAgo = math.MinInt64 / 2

func newTerm(ctx context.Context, e *Elector, rec Record, win lease.Action) *Term {
	now := e.clock.Now()
	t := &Term{
		e: e, epoch: rec.Epoch, clock: e.clock, began: now, record: rec,
		machine: lease.NewLeader(e.config, win, now),
		kick:    make(chan struct{}, 1), driver: make(chan struct{}, 1),
		exited: make(chan struct{}), idle: make(chan struct{}), told: make(chan struct{}), leaves: make(chan struct{}),
		released: make(chan struct{}),
	}
	t.driver <- struct{}{}
	t.progress.Store(int64(now))
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.step(lease.Input{Signal: lease.Tick})
	go t.lead()
	return t
}

// Context is cancelled when the term is over: at the leader's own deadline at the
// latest, even if the network or the heartbeat hangs. context.Cause returns the
// [TermError].
func (t *Term) Context() context.Context { return t.ctx }

// Epoch is the term's number. Epochs only rise.
func (t *Term) Epoch() fence.Epoch { return t.epoch }

// Token is the fencing token for the term's writes, as writer.Open takes it.
func (t *Term) Token() fence.Token { return fence.NewToken(t.epoch) }

// Remaining is how long the term lasts if no further heartbeat is applied; 0 once it
// is over. It takes some 100 ns on Linux and allocates nothing.
func (t *Term) Remaining() time.Duration {
	return max(clock.Instant(t.deadline.Load()).Sub(t.clock.Now()), 0)
}

// Held is how long no successor can lead if no further heartbeat is applied. While the term
// lasts, it is [Term.Remaining]. When the leader has resigned or was made to step down, it
// is how long the work may take to end. A resigned leader's heartbeats go on until its work
// has ended, so the time grows. Held is 0 once another process may lead.
//
// Use it to end by force what does not end with the context, such as another process.
func (t *Term) Held() time.Duration {
	return max(clock.Instant(t.held.Load()).Sub(t.clock.Now()), 0)
}

// Check returns nil if the term lasts for at least need. Call it before each side
// effect, with the time that this takes. It counts time in which the machine was
// suspended. If the term is over it returns the [TermError] that is the cause of
// the context; if too little time is left, [ErrShort], which says how much. A need
// above 9/10 of Validity can never be met. Success takes some 100 ns on Linux and
// allocates nothing.
//
// No local check makes a side effect safe: see what the package does not guarantee.
func (t *Term) Check(need time.Duration) error {
	// guard:check-clock. Term.Check reads the clock; it does not only ask whether the term's context is
	// cancelled.
	//
	//mutant:replace left > 0 && left >= need => t.over.Load() == nil && (left <= 0 || left >= need)
	left := clock.Instant(t.deadline.Load()).Sub(t.clock.Now())
	if left > 0 && left >= need {
		return nil
	}
	return t.short(need, left)
}

func (t *Term) short(need, left time.Duration) error {
	if left <= 0 && t.over.Load() == nil {
		// The timer is late, as after a suspend. End the term for all its users now.
		t.step(lease.Input{Signal: lease.Tick})
	}
	if over := t.over.Load(); over != nil {
		return over
	}
	return fmt.Errorf("%w: needs %v, %v are left", ErrShort, need, left)
}

// Progress says that the work is making progress, for Options.StallAfter. It costs
// as much as Check.
func (t *Term) Progress() { t.progress.Store(int64(t.clock.Now())) }

// Confirm proves with one round trip that this term leads. It sends a heartbeat, and
// returns nil when a heartbeat that was sent after the call is applied. So this
// process led at some moment during the call. Errors: the [TermError] if the term is
// over; ctx's cause. On stores that limit rewrites of a key, such as Google Cloud
// Storage with one a second, it first waits for its turn.
func (t *Term) Confirm(ctx context.Context) error {
	ok := make(chan struct{})
	t.mu.Lock()
	t.waiters = append(t.waiters, waiter{after: t.machine.Writes(), ok: ok})
	t.mu.Unlock()
	t.step(lease.Input{Signal: lease.Renew})
	select {
	case <-ok:
		return nil
	case <-t.ctx.Done():
		return context.Cause(t.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// step gives the machine a signal and does what can be done at once. The driver, a
// timer and Check call it. It sends no request and waits for none.
func (t *Term) step(in lease.Input) {
	t.mu.Lock()
	now := t.clock.Now()
	in.Progress = clock.Instant(t.progress.Load())
	r := t.machine.Step(now, in)
	paused := now.Sub(t.wake)
	if t.timer == nil {
		paused = 0
	}
	var over *TermError
	if r.Cancel != "" {
		over = t.end(r.Cancel, paused)
		t.over.Store(over)
		t.waiters = nil
	}
	if t.over.Load() != nil {
		t.deadline.Store(longAgo)
	} else {
		t.deadline.Store(int64(t.machine.Deadline()))
	}
	t.held.Store(int64(t.machine.Held()))
	if r.Write != nil {
		t.todo = r.Write
	}
	t.wake = r.Wake
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	// guard:own-timer. A timer ends the term at its deadline, and so cancels the context of the work,
	// also while a heartbeat is in flight.
	//
	//mutant:replace !t.done { => !t.done && r.Write == nil {
	if t.done = r.Done; !t.done {
		t.timer = t.clock.AfterFunc(r.Wake.Sub(now), func() { t.step(lease.Input{Signal: lease.Tick}) })
	}
	t.mu.Unlock()

	if over != nil {
		t.cancel(over)
	}
	if paused > t.e.opts.margin() && over == nil { // or the end of the term says it
		t.e.opts.Logger.Warn("this process was paused, or its machine was suspended",
			sink.Epoch(t.epoch), zap.Duration("paused", paused.Round(time.Millisecond)))
	}
	select {
	case t.kick <- struct{}{}:
	default:
	}
	if over != nil {
		t.mu.Lock()
		if !t.hailed {
			t.early = func() { t.ended(over, now) }
		}
		hailed := t.hailed
		t.mu.Unlock()
		if hailed {
			t.ended(over, now)
		}
	}
}

// hail says that Hooks.Elected has returned. A term can end before that, if the process is paused or the
// hook takes long. Whoever counts terms must hear of its beginning first.
func (t *Term) hail() {
	t.mu.Lock()
	t.hailed = true
	early := t.early
	t.mu.Unlock()
	if early != nil {
		early()
	}
}

// end returns the term's error. It is called with mu held.
func (t *Term) end(c lease.Cause, paused time.Duration) *TermError {
	e := &TermError{Epoch: t.epoch, Err: t.failed}
	switch c {
	case lease.ByExpiry:
		if e.Kind = ErrExpired; paused > t.e.opts.margin() {
			e.Err = fmt.Errorf("this process was paused for %v, or its machine was suspended", paused.Round(time.Millisecond))
		}
	case lease.ByDeposing:
		e.Kind = ErrDeposed
	case lease.ByStall:
		e.Kind, e.Err = ErrStalled, nil
	case lease.ByResigning:
		e.Kind, e.Err, e.Successor = ErrResigned, t.life.why, t.close
	default: // a cause that has no case here yet must not count as the leader's will
		e.Kind = ErrLost
	}
	return e
}

// ended reports the end of the term.
func (t *Term) ended(over *TermError, now clock.Instant) {
	defer close(t.told) // also if the hook panics
	led := now.Sub(t.began)
	level, why := zap.InfoLevel, zap.String("reason", over.Error()) // a clean end is no error
	if over.lost() {
		level, why = zap.WarnLevel, zap.Error(over)
	}
	t.e.opts.Logger.Log(level, "term over", sink.Epoch(t.epoch), zap.Duration("led", led.Round(time.Millisecond)), why)
	if h := t.e.opts.Hooks.Ended; h != nil {
		h(End{Epoch: t.epoch, Cause: over, Led: led})
	}
}
