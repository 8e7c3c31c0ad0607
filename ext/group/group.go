package group

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/contact"
	"github.com/fencepost/fencepost/store/probe"
)

// Group is the membership of this process in a group: one session, from Join to its end. It is
// safe for concurrent use.
type Group struct {
	st     store.Store
	opts   Options
	format format
	name   fence.ID
	clock  clock.Clock

	ctx    context.Context //nolint:containedctx // the parent of the works' contexts; no request runs under it
	cancel context.CancelCauseFunc
	// deadline is when the session ends unless renewed, and longAgo once it is over.
	deadline atomic.Int64
	over     atomic.Pointer[EndError]

	live  chan struct{} // closed when the member's object is created
	ended chan struct{} // closed when the session is over and Hooks.Ended has returned

	randMu sync.Mutex
	rand   *rand.Rand

	jobCtx context.Context //nolint:containedctx // of all requests; ends with the session
	stop   context.CancelCauseFunc
	jobs   sync.WaitGroup
	rate   rate

	mu      sync.Mutex // never held across a request or a hook
	machine *member.Machine
	timer   clock.Timer
	joined  bool
	work    func(ctx context.Context, p *Partition) error
	parts   map[int]*Partition
	idle    *sync.Cond // signalled when a work has returned
	done    bool
}

// longAgo is the deadline of a session that is over: it is before any instant.
const longAgo = math.MinInt64 / 2

// Join makes this process a member of the group in st, whose objects have keys that begin with
// "group/". It creates the group first if there is none and Options.Partitions says how large
// it is to be. The member owns nothing until [Group.Run] is called.
//
// If an earlier session of this process in this group has ended with [ErrHung], Join waits until its work has
// returned.
//
// Join retries transient failures of the store until ctx ends. Then it returns, and a session that has begun
// leaves without the caller, as with [Group.Leave]. Errors: ctx's cause; [ErrOptions]; [ErrNoGroup]; probe.ErrRefused if the store cannot be used; fence.ErrFormat and
// fence.ErrCorrupt if group.json cannot be read; permanent errors of the store.
func Join(ctx context.Context, st store.Store, opts *Options) (*Group, error) {
	if err := given(st, opts); err != nil {
		return nil, err
	}
	o := Options{Clock: clock.System()}
	if opts != nil {
		o = *opts
		o.Clock = clock.Or(o.Clock)
	}
	f, err := found(ctx, st, &o, &store.SettleOptions{Clock: o.Clock, Retrying: complaining(o.Logger, st, o.Clock)})
	if err != nil {
		return nil, err
	}
	o, err = o.withDefaults(f.validity(), st.Traits())
	if err != nil {
		return nil, err
	}
	if err := awaitHung(ctx, f.Group, o.Logger); err != nil {
		return nil, err
	}
	for {
		g := newGroup(ctx, st, o, f)
		g.step(member.Event{Kind: member.Join})
		select {
		case <-g.live:
			return g, nil
		case <-g.ended:
			err := error(g.over.Load())
			if store.Permanent(err) {
				return nil, err
			}
			// The answer came too late, so nobody knows what became of the name. Take another.
			g.opts.Logger.Warn("joining again under another name", zap.Error(err))
		case <-ctx.Done():
			_ = g.Leave(ended)
			return nil, context.Cause(ctx)
		}
		if err := clock.Sleep(ctx, o.Clock, o.RequestTimeout/4); err != nil {
			return nil, err
		}
	}
}

// complaining logs that the store does not answer: at the second failure, and every 5 s.
func complaining(logger *zap.Logger, st store.Store, c clock.Clock) func(error) {
	if logger == nil {
		return nil
	}
	var mu sync.Mutex
	failures, first, told := 0, clock.Instant(0), clock.Instant(0)
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		now := c.Now()
		if failures++; failures == 1 {
			first = now
			return
		}
		if failures == 2 || now.Sub(told) >= 5*time.Second {
			told = now
			logger.Warn("the store does not answer; trying again", zap.String("store", st.Traits().Where()), zap.Duration("for", now.Sub(first).Round(time.Millisecond)), zap.String("error", contact.Brief(err)))
		}
	}
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func newGroup(ctx context.Context, st store.Store, o Options, f format) *Group {
	seed := [2]uint64{o.Seed, 0}
	if o.Seed == 0 {
		seed = [2]uint64{rand.Uint64(), rand.Uint64()}
	}
	g := &Group{
		st: st, opts: o, format: f, clock: o.Clock, rand: rand.New(rand.NewPCG(seed[0], seed[1])),
		live: make(chan struct{}), ended: make(chan struct{}), parts: map[int]*Partition{},
	}
	g.idle = sync.NewCond(&g.mu)
	// guard:new-name. Every session of a worker has a name of its own, because a name that was found
	// dead stays dead for ever.
	//
	//mutant:replace fence.ID(uuid.New()) => fence.ID(uuid.NewSHA1(uuid.Nil, []byte(o.Identity)))
	g.name = fence.ID(uuid.New())
	free := context.WithoutCancel(ctx)
	g.ctx, g.cancel = context.WithCancelCause(free)
	g.jobCtx, g.stop = context.WithCancelCause(free)
	g.machine = member.New(member.Config{
		Self: g.name, Group: f.Group, Partitions: f.Partitions, Base: f.Base,
		Identity: o.Identity, Weight: uint64(max(o.Weight, 0)), Data: o.Data,
		Validity: o.Validity, Renew: o.Renew, Margin: o.Margin, ClockRate: o.ClockRate, MinRewrite: st.Traits().MinRewrite,
		Drain: o.Drain, StallAfter: o.StallAfter, Progress: g.progress, Random: g.random, Nonce: newNonce,
	})
	return g
}

func (g *Group) random() float64 {
	g.randMu.Lock()
	defer g.randMu.Unlock()
	return g.rand.Float64()
}

// Member is the name of this session, as [Status] has it. Each session has another.
func (g *Group) Member() string { return g.name.String() }

// Probe is what the probe of the store has found when the group was created, or nil. A log of one of the
// group's partitions need not probe the store again: see manifest.InitOptions.
func (g *Group) Probe() *probe.Report { return g.format.Probe }

// Run calls work once for each partition that this member owns, in a goroutine of its own, with a context
// that ends with the ownership. If work returns an error while that lasts, Run calls it again,
// after a second at first and later each time, with the next token. After three failures in a row it asks that
// another member gets the partition. When three members have given it up, it stays with the last one. Work that
// returns nil is done, until the partition comes back another time.
//
// Work that does not return after its context has ended ends the session. When that was so with a third member in a
// row, nobody gets the partition until somebody calls [Retry].
//
// When ctx ends, or [Group.Leave] is called, the member leaves in good order: its partitions go to others,
// and the work on each goes on until the new owner is ready.
//
// Run returns when the session is over and all work has returned, but waits no longer than
// Options.Drain. It returns nil if the member left in good order: ctx ended, or after
// Leave or [Drain]; an [EndError] otherwise. If that is [ErrHung], some work still runs, and [Join]
// waits for it in this process. [ErrBusy] if Run was called before.
func (g *Group) Run(ctx context.Context, work func(ctx context.Context, p *Partition) error) error {
	g.mu.Lock()
	if g.work != nil {
		g.mu.Unlock()
		return ErrBusy
	}
	g.work = work
	g.mu.Unlock()
	g.step(member.Event{Kind: member.Run})
	unlink := context.AfterFunc(ctx, func() { g.step(member.Event{Kind: member.Leave}) })
	defer unlink()
	<-g.ended
	hung := g.wait()
	g.jobs.Wait()
	end := g.over.Load()
	switch {
	case len(hung) > 0:
		g.leaveBehind()
		return &EndError{Member: g.Member(), Partition: hung[0], Kind: ErrHung, Err: end}
	case !errors.Is(end.Kind, ErrLeft):
		return end
	}
	return nil
}

// wait waits until all work has returned, for the time of a drain, and returns what still runs.
func (g *Group) wait() (hung []int) {
	late := false
	timer := g.clock.AfterFunc(g.opts.Drain, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		late = true
		g.idle.Broadcast()
	})
	defer timer.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.parts) > 0 && !late && !errors.Is(g.over.Load().Kind, ErrHung) {
		g.idle.Wait()
	}
	for p := range g.parts {
		hung = append(hung, p)
	}
	slices.Sort(hung)
	return hung
}

// Leave ends the session in good order, and returns when it is over: nil, or the [EndError] if it was
// lost meanwhile or before; or ctx's cause, and then leaving goes on without the caller. The work on a partition
// may call it only with a context that has ended.
func (g *Group) Leave(ctx context.Context) error {
	g.step(member.Event{Kind: member.Leave})
	select {
	case <-g.ended:
		if end := g.over.Load(); !errors.Is(end.Kind, ErrLeft) {
			return end
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// leaving reports whether this member is told to leave, or is drained.
func (g *Group) leaving() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.machine.Leaving()
}

// step gives the machine an event and does what can be done at once. It sends no request and waits for
// none.
func (g *Group) step(ev member.Event) {
	g.mu.Lock()
	if g.done {
		g.mu.Unlock()
		return
	}
	now := g.clock.Now()
	r := g.machine.Step(now, ev)
	var over *EndError
	if r.Ended != "" {
		over = &EndError{Member: g.Member(), Partition: -1, Kind: kind(r.Ended), Err: r.Err}
		g.over.Store(over)
		g.deadline.Store(longAgo)
		g.done = true
	} else {
		g.deadline.Store(int64(g.machine.Deadline()))
	}
	if !g.joined && !g.done && g.machine.Joined() {
		g.joined = true
		close(g.live)
	}
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	// guard:own-timer. A timer ends the session at its deadline, also while a heartbeat is in flight.
	//
	//mutant:replace !g.done => !g.done && len(r.Jobs) == 0
	if !g.done {
		g.timer = g.clock.AfterFunc(r.Wake.Sub(now), func() { g.step(member.Event{Kind: member.Tick}) })
	}
	stops := map[*Partition]member.Cause{}
	for _, s := range r.Stops {
		if p := g.parts[s.Partition]; p != nil {
			stops[p] = s.Cause
		}
	}
	for _, s := range r.Starts {
		g.parts[s.Partition] = g.begin(s, now)
	}
	for _, j := range r.Jobs {
		g.jobs.Add(1)
		go g.carryOut(j, j.Until.Sub(now))
	}
	g.mu.Unlock()

	if over != nil {
		g.cancel(over)
	}
	for p, why := range stops {
		p.cancel(&EndError{Member: g.Member(), Partition: p.number, Kind: kind(why)})
	}
	g.report(r)
	if over != nil {
		g.finish(over)
	}
}

// finish tells that the session is over.
func (g *Group) finish(over *EndError) {
	defer close(g.ended) // also if the hook panics
	g.stop(over)
	g.opts.Logger.Info("session over", zap.String("member", g.Member()), zap.Error(over))
	if h := g.opts.Hooks.Ended; h != nil {
		h(End{Member: g.Member(), Cause: over})
	}
}

// report passes on what a step has brought.
func (g *Group) report(r member.Ready) {
	log := g.opts.Logger
	if a := r.Adopted; a != nil {
		ev := Assigned{Number: a.Number(), Partitions: a.Partitions(), Members: len(a.Members())}
		if i, ok := a.Index(g.name); ok {
			ev.Owned = a.Shares()[i]
		}
		log.Info("new assignment", zap.Uint64("number", ev.Number), zap.Int("owned", ev.Owned), zap.Int("partitions", ev.Partitions), zap.Int("members", ev.Members))
		if h := g.opts.Hooks.Assigned; h != nil {
			h(ev)
		}
	}
	for _, n := range r.Notes {
		switch n.What {
		case member.NoteBeat:
			left := max(clock.Instant(g.deadline.Load()).Sub(g.clock.Now()), 0)
			if n.Err != nil {
				log.Warn("heartbeat failed", zap.Duration("remaining", left), zap.Error(n.Err))
			}
			if h := g.opts.Hooks.Heartbeat; h != nil {
				h(Heartbeat{Err: n.Err, Took: n.Took, Remaining: left})
			}
		case member.NoteParked:
			log.Error("the work on a partition failed with every owner that tried it; it stays with its owner", zap.Int("partition", n.Partition))
			if h := g.opts.Hooks.Parked; h != nil {
				h(Parking{Partition: n.Partition})
			}
		case member.NoteWithheld:
			log.Error("the work on a partition hung, after two more owners had given it up; nobody owns it now; mend the work, then call Retry or fencepost group retry", zap.Int("partition", n.Partition))
			if h := g.opts.Hooks.Parked; h != nil {
				h(Parking{Partition: n.Partition, Unowned: true})
			}
		case member.NoteExpired:
			log.Warn("a member shows no sign of life; it is expired", zap.Stringer("member", n.Member))
		case member.NoteAssigned:
			log.Info("made an assignment", zap.Uint64("number", n.Number), zap.Duration("took", n.Took))
		}
	}
}

var errNoAnswer = errors.New("group: no answer in time")

// settle returns the options of requests. A read is tried that often.
func (g *Group) settle(reads int) *store.SettleOptions {
	t := g.opts.RequestTimeout
	return &store.SettleOptions{Attempt: t, MaxBackoff: min(2*time.Second, t), Reads: reads, Clock: g.clock, Random: g.random}
}
