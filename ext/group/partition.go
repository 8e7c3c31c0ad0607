package group

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
)

// Partition is one opening of a partition that this member owns. It is safe for concurrent use.
type Partition struct {
	g        *Group
	number   int
	token    fence.Token
	start    member.Start
	began    clock.Instant
	ctx      context.Context //nolint:containedctx // what the work gets; no request runs under it
	cancel   context.CancelCauseFunc
	done     chan struct{} // closed when the work has returned
	progress atomic.Int64
}

// Number is the partition's, from 0.
func (p *Partition) Number() int { return p.number }

// Token is the fencing token of this opening. Every later owner of the partition has a greater one, and so has each
// later opening by this owner. A member whose clock stood still may open a partition late, with the token that
// it was given, which is lower than those that were given since.
func (p *Partition) Token() fence.Token { return p.token }

// Idle is for how long nobody had worked on the partition when this opening began, as far as this member knows. After a
// crash it counts from when this member read that it is the owner. Where many wait, serve those first that were idle for
// longest.
func (p *Partition) Idle() time.Duration { return p.start.Idle }

// Remaining is how long the ownership lasts if no further heartbeat is applied; 0 once it is over.
func (p *Partition) Remaining() time.Duration {
	if p.ctx.Err() != nil {
		return 0
	}
	return max(clock.Instant(p.g.deadline.Load()).Sub(p.g.clock.Now()), 0)
}

// Held is how long no other member can work on the partition if no further heartbeat is applied. While the
// ownership lasts, it is [Partition.Remaining]. When the partition moves, it is how long the work may take to end;
// heartbeats go on meanwhile, so the time grows. It is 0 once the session is over.
//
// Use it to end by force what does not end with the context, such as another process.
func (p *Partition) Held() time.Duration {
	return max(clock.Instant(p.g.deadline.Load()).Sub(p.g.clock.Now()), 0)
}

// Check returns nil if the ownership lasts for at least need. Call it before each side effect that
// does not carry the token. It counts time in which the machine was suspended. If the ownership is over it returns
// the [EndError]; if too little time is left, [ErrShort].
//
// A process may be paused right after Check, so no local check makes a side effect safe: see
// fence.Gate and package writer.
func (p *Partition) Check(need time.Duration) error {
	// guard:check-clock. Partition.Check reads the clock; it does not only ask whether the context is
	// cancelled.
	//
	//mutant:replace left > 0 && left >= need => left <= 0 || left >= need
	left := clock.Instant(p.g.deadline.Load()).Sub(p.g.clock.Now())
	if left > 0 && left >= need && p.ctx.Err() == nil {
		return nil
	}
	if left <= 0 {
		// The timer is late, as after a suspend. End the session for all its users now.
		p.g.step(member.Event{Kind: member.Tick})
	}
	if over := p.g.over.Load(); over != nil {
		return over
	}
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	return fmt.Errorf("%w: needs %v, %v are left", ErrShort, need, left)
}

// Progress says that the work is making progress, for Options.StallAfter. It costs as much as Check.
func (p *Partition) Progress() { p.progress.Store(int64(p.g.clock.Now())) }

// progress is called by the machine, with mu held.
func (g *Group) progress(n int) clock.Instant {
	if p := g.parts[n]; p != nil {
		return clock.Instant(p.progress.Load())
	}
	return 0
}

// begin starts the work on a partition. It is called with mu held.
func (g *Group) begin(s member.Start, now clock.Instant) *Partition {
	p := &Partition{g: g, number: s.Partition, token: s.Token, start: s, began: now, done: make(chan struct{})}
	p.progress.Store(int64(now))
	p.ctx, p.cancel = context.WithCancelCause(g.ctx)
	go p.run(g.work)
	return p
}

// run is the goroutine of the work.
func (p *Partition) run(work func(ctx context.Context, p *Partition) error) {
	g := p.g
	// Deferred, so that the partition is also given free if work, or a hook, exits its goroutine.
	err := errExited
	defer func() { p.returned(err) }()
	g.opts.Logger.Debug("opening", zap.Int("partition", p.number), zap.Stringer("token", p.token), zap.Duration("waited", p.start.Waited))
	if h := g.opts.Hooks.Opened; h != nil {
		h(Opening{Partition: p.number, Token: p.token, Failures: p.start.Failures, Waited: p.start.Waited})
	}
	err = work(p.ctx, p)
}

var errExited = errors.New("group: the work ended its goroutine without returning")

// returned notes that the work has returned.
func (p *Partition) returned(err error) {
	g := p.g
	var why *EndError
	if p.ctx.Err() != nil {
		_ = errors.As(context.Cause(p.ctx), &why)
	}
	again := why == nil && errors.Is(err, ErrAgain)
	if again {
		err = nil
	}
	failed := err != nil && why == nil
	ran := g.clock.Now().Sub(p.began)
	if failed || !obeyed(err) {
		g.opts.Logger.Warn("the work on a partition failed", zap.Int("partition", p.number), zap.Duration("ran", ran), zap.Error(err))
	}
	defer func() { // also if the hook exits its goroutine
		p.cancel(context.Canceled)
		g.mu.Lock()
		delete(g.parts, p.number)
		g.idle.Broadcast()
		g.mu.Unlock()
		p.broughtHome()
		close(p.done)
		g.step(member.Event{Kind: member.Returned, Partition: p.number, Failed: failed, Again: again})
	}()
	if h := g.opts.Hooks.Closed; h != nil {
		h(Closing{Partition: p.number, Token: p.token, Cause: why, Err: err, Ran: ran})
	}
}

// obeyed reports whether work that was told to stop, and returned err, has only done so.
func obeyed(err error) bool {
	_, end := errors.AsType[*EndError](err)
	return err == nil || end || errors.Is(err, context.Canceled) || errors.Is(err, fence.ErrFenced)
}
