package leader

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/lease"
)

// Term is one leadership, from a confirmed win to its end. It is safe for
// concurrent use.
type Term struct {
	e     *Elector
	epoch fence.Epoch
	clock clock.Clock
	began clock.Instant

	ctx    context.Context //nolint:containedctx // the term's own, to be given out; no request runs under it
	cancel context.CancelCauseFunc

	// deadline is when the term ends unless renewed, and long ago once it is over.
	deadline atomic.Int64
	progress atomic.Int64
	over     atomic.Pointer[TermError]
	load     load

	kick   chan struct{} // wakes the driver up
	driver chan struct{} // holds a token while nobody drives
	exited chan struct{} // closed when the term's own driver has ended
	idle   chan struct{} // closed when the work has ended, after the term began to end

	mu      sync.Mutex // never held across a request
	machine *lease.Leader
	timer   clock.Timer
	todo    *lease.Write
	done    bool
	why     error // what a cancelled context told Run
	failed  error // the last failed write
	record  Record
	works   int
	ending  bool
	waiters []waiter
}

type waiter struct {
	after uint64 // it waits for a write numbered higher
	ok    chan struct{}
}

// ended long ago: no need fits before it.
const longAgo = math.MinInt64 / 2

func newTerm(ctx context.Context, e *Elector, rec Record, win lease.Action) *Term {
	now := e.clock.Now()
	t := &Term{
		e: e, epoch: rec.Epoch, clock: e.clock, began: now, record: rec,
		machine: lease.NewLeader(e.config, win, now),
		kick:    make(chan struct{}, 1), driver: make(chan struct{}, 1),
		exited: make(chan struct{}), idle: make(chan struct{}),
	}
	t.driver <- struct{}{}
	t.progress.Store(int64(now))
	t.load.from = now
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.step(lease.Input{Signal: lease.Tick})
	go t.lead()
	return t
}

// Context is cancelled when the term is over, at the leader's own deadline at
// the latest, whatever the network and the heartbeat are doing. context.Cause
// tells why: a [TermError].
func (t *Term) Context() context.Context { return t.ctx }

// Epoch is the term's number. Epochs only rise.
func (t *Term) Epoch() fence.Epoch { return t.epoch }

// Token is the fencing token for the term's writes.
func (t *Term) Token() fence.Token { return fence.NewToken(uint64(t.epoch)) }

// Remaining is for how long this leader may believe that it leads, if no more
// heartbeat gets through; 0 once the term is over. It takes some 100 ns on Linux
// and allocates nothing.
func (t *Term) Remaining() time.Duration {
	return max(clock.Instant(t.deadline.Load()).Sub(t.clock.Now()), 0)
}

// Check returns nil if the term lasts for need at least, by a clock that counts
// suspend: call it before every side effect. If the term is over it returns the
// [TermError] that the context has as its cause; if just too little is left,
// [ErrShort]. It takes some 100 ns on Linux and allocates nothing.
//
// Nothing that a leader can ask locally protects from a pause right after it.
// What must not happen twice needs the epoch checked at its destination: see
// fence.Gate, or package writer.
func (t *Term) Check(need time.Duration) error {
	// guard:check-clock. The clock, not the context, whose timer sleeps in suspend.
	//
	//mutant:replace left > 0 && left >= need => t.over.Load() == nil && (left <= 0 || left >= need)
	left := clock.Instant(t.deadline.Load()).Sub(t.clock.Now())
	if left > 0 && left >= need {
		return nil
	}
	return t.short(left)
}

func (t *Term) short(left time.Duration) error {
	if left <= 0 && t.over.Load() == nil {
		// The timer is late, as after a suspend: what this call has found out holds
		// for everybody from now on.
		t.step(lease.Input{Signal: lease.Tick})
	}
	if over := t.over.Load(); over != nil {
		return over
	}
	return ErrShort
}

// Err is nil while the term lasts, and its [TermError] after that.
func (t *Term) Err() error {
	if over := t.over.Load(); over != nil {
		return over
	}
	return nil
}

// Progress is a sign of life from the work, for Options.StallAfter. It costs what
// Check does.
func (t *Term) Progress() { t.progress.Store(int64(t.clock.Now())) }

// Confirm proves with one round trip that this term leads: it sends a heartbeat
// and returns nil when one that was sent after the call is applied. The answer
// was true at some moment during the call. Errors: the [TermError] once the term
// is over; ctx's cause. On stores that limit rewrites of a key it waits for its
// turn.
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

// step gives the machine an input and does what can be done at once. Whoever
// calls it — the driver, a timer, Check — it needs no network and waits for none.
func (t *Term) step(in lease.Input) {
	t.mu.Lock()
	now := t.clock.Now()
	in.Progress = clock.Instant(t.progress.Load())
	r := t.machine.Step(now, in)
	var over *TermError
	if r.Cancel != 0 {
		over = t.end(r.Cancel)
		t.over.Store(over)
		t.waiters = nil
	}
	if t.over.Load() != nil {
		t.deadline.Store(longAgo)
	} else {
		t.deadline.Store(int64(t.machine.Deadline()))
	}
	if r.Write != nil {
		t.todo = r.Write
	}
	if t.timer != nil {
		t.timer.Stop()
		t.timer = nil
	}
	// guard:own-timer. One timer for all that time can bring about, the deadline included. It runs
	// in a goroutine of its own, and also while a heartbeat waits for its answer.
	//
	//mutant:replace !t.done { => !t.done && r.Write == nil {
	if t.done = r.Done; !t.done {
		t.timer = t.clock.AfterFunc(r.Wake.Sub(now), func() { t.step(lease.Input{Signal: lease.Tick}) })
	}
	t.mu.Unlock()

	if over != nil {
		t.cancel(over)
	}
	select {
	case t.kick <- struct{}{}:
	default:
	}
	if over != nil {
		t.ended(over, now)
	}
}

// end makes the term's error. It is called with mu held.
func (t *Term) end(c lease.Cause) *TermError {
	e := &TermError{Epoch: t.epoch, Err: t.failed}
	switch c {
	case lease.ByExpiry:
		e.Kind = ErrExpired
	case lease.ByDeposing:
		e.Kind = ErrDeposed
	case lease.ByStall:
		e.Kind, e.Err = ErrStalled, nil
	case lease.ByHandover:
		e.Kind, e.Err = ErrHandedOver, nil
	default:
		e.Kind, e.Err = ErrResigned, t.why
	}
	return e
}

// ended tells the world.
func (t *Term) ended(over *TermError, now clock.Instant) {
	led := now.Sub(t.began)
	t.e.opts.Logger.Info("term over", zap.Uint64("epoch", uint64(t.epoch)), zap.Duration("led", led), zap.Error(over))
	if h := t.e.opts.Hooks.Ended; h != nil {
		h(End{Epoch: t.epoch, Cause: over, Led: led})
	}
}
