package leader

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/store"
)

// Elector is one candidate in one election. It is safe for concurrent use, but
// campaigns for and holds one term at a time.
type Elector struct {
	files
	opts   Options
	config lease.Config
	busy   atomic.Bool

	randMu sync.Mutex
	rand   *rand.Rand
}

// New returns an elector for the election whose locks are st's objects
// <prefix>/<epoch>.json, as "lock/00000000000000000007.json" for the prefix
// "lock". It does no I/O and starts nothing. Errors: [ErrOptions], with all that
// is wrong, and store.ErrInvalid for a prefix that cannot be part of a key.
func New(st store.Store, prefix string, opts *Options) (*Elector, error) {
	prefix = strings.TrimSuffix(prefix, "/") + "/"
	if err := store.CheckPrefix("elect", prefix); err != nil {
		return nil, err
	}
	traits := st.Traits()
	o, err := opts.withDefaults(traits)
	if err != nil {
		return nil, err
	}
	seed := [2]uint64{o.Seed, 0}
	if o.Seed == 0 {
		seed = [2]uint64{rand.Uint64(), rand.Uint64()}
	}
	e := &Elector{
		files: files{st: st, prefix: prefix, clock: o.Clock, timeout: o.RequestTimeout},
		opts:  o,
		rand:  rand.New(rand.NewPCG(seed[0], seed[1])),
	}
	e.jitter = e.random
	e.config = o.machine(traits, e.random)
	return e, nil
}

func (e *Elector) random() float64 {
	e.randMu.Lock()
	defer e.randMu.Unlock()
	return e.rand.Float64()
}

// Identity is this candidate's name.
func (e *Elector) Identity() string { return e.opts.Identity }

// Campaign waits until this elector leads. The term goes on until it is lost,
// or ended by [Term.Resign]: who drops a term without Resign leads on for ever.
// ctx bounds the waiting only; its values are in the term's context.
//
// Failures of the store that may pass are waited for. Errors: ctx's cause;
// [ErrBusy]; [ErrJunk] and [ErrFormat] if the newest lock cannot be read;
// [ErrInconsistent]; and what the store will go on saying, such as
// store.ErrDenied. If ctx ends after the lock was created, Campaign takes up to
// one RequestTimeout more to free it.
func (e *Elector) Campaign(ctx context.Context) (*Term, error) { return e.campaign(ctx, nil) }

func (e *Elector) campaign(ctx context.Context, news func(Record)) (*Term, error) {
	if !e.busy.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	c := &campaign{Elector: e, machine: lease.NewCandidate(e.config), news: news, began: e.clock.Now()}
	t, err := c.run(ctx)
	c.endTakeover()
	if err != nil {
		e.busy.Store(false)
		return nil, err
	}
	if ctx.Err() != nil {
		// Won, but nobody waits for it any more.
		free, cancel := clock.WithTimeout(context.WithoutCancel(ctx), e.clock, e.opts.RequestTimeout, errNoAnswer)
		defer cancel()
		_ = t.leave(free, lease.Input{})
		return nil, context.Cause(ctx)
	}
	return t, nil
}

// campaign carries out what a candidate's machine wants.
type campaign struct {
	*Elector
	machine *lease.Candidate
	news    func(Record)
	began   clock.Instant

	last Record // the newest lock as last read
	own  Record // the lock that this campaign has created

	// takeover is the context of the requests between creating and leading; nil outside.
	takeover context.Context //nolint:containedctx // a campaign is one call of Campaign
	stop     func()
}

func (c *campaign) run(ctx context.Context) (*Term, error) {
	a := c.machine.Step(c.clock.Now(), lease.Event{Kind: lease.Start})
	for {
		if a.Report != nil {
			c.report(*a.Report)
		}
		switch a.Op {
		case lease.Lead:
			return c.lead(ctx, a), nil
		case lease.Fail:
			return nil, public(a.Err)
		}
		ev, err := c.do(ctx, a)
		if err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
		a = c.machine.Step(c.clock.Now(), ev)
	}
}

// public gives the machine's errors this package's names.
func public(err error) error {
	if errors.Is(err, lease.ErrVanished) || errors.Is(err, lease.ErrNumbers) {
		return fmt.Errorf("%w: %w", ErrInconsistent, err)
	}
	return err
}

// do carries out one action and returns the event that answers it.
func (c *campaign) do(ctx context.Context, a lease.Action) (lease.Event, error) {
	switch a.Op {
	case lease.Create:
		if a.Next == 0 { // a milestone leaves nothing behind to be freed
			c.beginTakeover(ctx)
		}
	case lease.Get: // somebody else's lock: the own one was a hole
		c.endTakeover()
	}
	if c.takeover != nil {
		ctx = c.takeover
	}
	ev := lease.Event{Sent: c.clock.Now()}
	var err error
	switch a.Op {
	case lease.Wait:
		ev.Kind = lease.Woke
		err = clock.Sleep(ctx, c.clock, a.Until.Sub(ev.Sent))
	case lease.List:
		ev.Epoch, ev.Version, err = c.newest(ctx, a.After)
		return readEvent(ctx, ev, lease.Listed, err)
	case lease.Get:
		var rec Record
		rec, ev.Age, err = c.read(ctx, a.Epoch, a.Known, c.once())
		if err == nil {
			c.last, ev.Lock = rec, rec.lock()
		}
		return readEvent(ctx, ev, lease.Got, err)
	case lease.Depose:
		rec := c.last
		rec.State, rec.Nonce = Expired, a.Nonce
		rec.Reason, rec.ExpiredBy, rec.Successor = "lapsed", c.opts.Identity, c.opts.Identity
		ev.Version, ev.Clean, err = c.swap(ctx, rec, a.Known)
		return c.written(ev, err)
	case lease.Create:
		now := c.clock.Wall()
		c.own = Record{
			Epoch: fence.Epoch(a.Epoch), State: Held, Holder: c.opts.Identity, Nonce: a.Nonce,
			Validity: c.opts.Validity, Renew: c.opts.Renew, Acquired: now, Renewed: now, Transitions: c.last.Transitions,
		}
		if c.last.Epoch != 0 && c.last.Holder != c.own.Holder {
			c.own.Transitions++
		}
		if a.Next > 0 {
			c.own.State, c.own.Next = Expired, fence.Epoch(a.Next)
			c.own.Reason, c.own.ExpiredBy, c.own.Successor = "milestone", c.opts.Identity, c.opts.Identity
			c.own.Transitions = c.last.Transitions
		}
		ev.Version, err = c.create(ctx, c.own)
		return c.written(ev, err)
	case lease.Confirm:
		c.own.Nonce, c.own.Renewed = a.Nonce, c.clock.Wall()
		ev.Version, ev.Clean, err = c.swap(ctx, c.own, a.Known)
		return c.written(ev, err)
	}
	return ev, err
}

// readEvent tells the store's answers from its failures.
func readEvent(ctx context.Context, ev lease.Event, ok lease.Kind, err error) (lease.Event, error) {
	switch {
	case err == nil:
		ev.Kind = ok
	case errors.Is(err, store.ErrNotModified):
		ev.Kind = lease.Same
	case errors.Is(err, store.ErrNotFound):
		ev.Kind = lease.Gone
	case errors.Is(err, ErrJunk), errors.Is(err, ErrFormat):
		ev.Kind, ev.Err = lease.Junk, err
	case store.Permanent(err):
		return ev, err
	case ctx.Err() != nil:
		return ev, context.Cause(ctx)
	default:
		ev.Kind = lease.Failed
	}
	return ev, nil
}

// written tells a write's outcome. One that is unknown or was turned away ends
// the campaign: the key must not be left behind unsettled.
func (c *campaign) written(ev lease.Event, err error) (lease.Event, error) {
	switch store.OutcomeOf(err) {
	case store.Applied:
		ev.Kind = lease.Applied
	case store.Refused:
		c.endTakeover()
		ev.Kind = lease.Refused
	default:
		return ev, err
	}
	return ev, nil
}

// beginTakeover lets the steps from creating a lock to leading or freeing it
// outlive the caller's patience by one request: a lock left behind held would
// cost everybody a validity.
func (c *campaign) beginTakeover(ctx context.Context) {
	c.endTakeover()
	takeover, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	var patience clock.Timer
	var mu sync.Mutex
	stop := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		patience = c.clock.AfterFunc(c.opts.RequestTimeout, func() { cancel(context.Cause(ctx)) })
	})
	c.takeover = takeover
	c.stop = func() {
		stop()
		mu.Lock()
		defer mu.Unlock()
		if patience != nil {
			patience.Stop()
		}
		cancel(context.Canceled)
	}
}

func (c *campaign) endTakeover() {
	if c.takeover != nil {
		c.stop()
		c.takeover = nil
	}
}

// lead begins the term.
func (c *campaign) lead(ctx context.Context, win lease.Action) *Term {
	c.own.Version = win.Known
	took := c.clock.Now().Sub(c.began)
	t := newTerm(ctx, c.Elector, c.own, win)
	c.opts.Logger.Info("elected", zap.Uint64("epoch", win.Epoch), zap.String("holder", c.opts.Identity), zap.Duration("took", took))
	if h := c.opts.Hooks.Elected; h != nil {
		h(Election{Epoch: t.epoch, Took: took})
	}
	c.tell(c.own)
	return t
}

// report passes on news of the newest lock.
func (c *campaign) report(r lease.Report) {
	if r.Lock.Epoch == 0 {
		return
	}
	rec := c.last
	rec.Lapsed = r.Lapsed
	c.tell(rec)
}

func (c *campaign) tell(rec Record) {
	if h := c.opts.Hooks.Leader; h != nil {
		h(rec)
	}
	if c.news != nil {
		c.news(rec)
	}
}

// Run campaigns, runs work for one term, and releases the lock when work has
// returned, whatever it returned. To lead again, call it again.
//
// The context given to work is the term's: it is cancelled when the term is
// lost, when ctx is cancelled, and after [Term.Resign]. Run always waits for
// work, and only then releases the lock.
//
// It returns work's error; or, if the term was lost under it, an error that is
// [ErrLost], with work's own if that says something else; or nil if work ended
// because of Resign or Handover; or [Elector.Campaign]'s error.
func (e *Elector) Run(ctx context.Context, work func(ctx context.Context, t *Term) error) error {
	t, err := e.Campaign(ctx)
	if err != nil {
		return err
	}
	return e.serve(ctx, t, work)
}

func (e *Elector) serve(ctx context.Context, t *Term, work func(ctx context.Context, t *Term) error) (err error) {
	ended, err := t.enter()
	if err != nil {
		_ = t.leave(context.WithoutCancel(ctx), lease.Input{})
		return err
	}
	unlink := context.AfterFunc(ctx, func() {
		t.leaving(lease.Input{Keep: e.opts.NoRelease}, context.Cause(ctx))
	})
	// Deferred, so that work that panics or exits its goroutine frees the lock too.
	defer func() {
		unlink()
		over := t.over.Load()
		ended()
		_ = t.leave(context.WithoutCancel(ctx), lease.Input{Keep: e.opts.NoRelease && ctx.Err() != nil})
		err = verdict(ctx, over, err)
	}()
	return work(t.ctx, t)
}

// verdict is what Run says when work returned err at a time when its term was
// over, or not.
func verdict(ctx context.Context, over *TermError, err error) error {
	stopped := err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrLost)
	switch {
	case over == nil:
		return err
	case over.lost() && stopped:
		return over
	case over.lost():
		return fmt.Errorf("%w; the work: %w", over, err)
	case !stopped:
		return err
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	}
	return nil
}
