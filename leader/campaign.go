package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// campaign carries out the actions of a candidate's state machine. Observers use
// it too.
type campaign struct {
	*Elector
	machine *lease.Candidate
	began   clock.Instant

	last Record // the newest lock as last read
	told Record // the newest lock that was logged
	own  Record // the lock that this campaign has created

	follows bool          // it is a candidate, and no observer
	noted   sighting      // the note that it left last
	failed  sighting      // the note that it could not leave
	again   clock.Instant // when it tries that one again

	// takeover is the context of the requests from creating a lock until it leads;
	// nil at other times.
	takeover context.Context //nolint:containedctx // a campaign is one call of Campaign
	stop     func()
}

// run drives the machine until it leads, and calls report with the newest lock and its
// changes until that returns false. Epoch 0: there is no lock.
func (c *campaign) run(ctx context.Context, report func(Record) bool) (lease.Action, error) {
	defer c.endTakeover()
	a := c.machine.Step(c.began, lease.Event{Kind: lease.Start})
	for {
		if r := a.Report; r != nil {
			var rec Record
			if r.Lock.Epoch != 0 {
				rec = c.last
				if rec.Lapsed = r.Lapsed; r.Dead {
					rec.Reason = reclaimed
				}
			}
			if !report(rec) {
				return a, nil
			}
		}
		switch a.Op {
		case lease.Lead:
			return a, nil
		case lease.Fail:
			return a, public(a.Err)
		}
		ev, err := c.do(ctx, a)
		if err != nil {
			if ctx.Err() != nil {
				err = c.outage.Explain(context.Cause(ctx))
			}
			return a, err
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

var errNoAnswer = errors.New("leader: no answer in time")

// do carries out one action and returns the event that answers it.
func (c *campaign) do(ctx context.Context, a lease.Action) (lease.Event, error) {
	switch a.Op {
	case lease.Create:
		if a.Next == 0 { // a milestone need not be released
			c.beginTakeover(ctx)
		}
	case lease.Get: // another lock: the own one was created in a hole
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
		c.sight(ctx, a.Until)
		err = clock.Sleep(ctx, c.clock, a.Until.Sub(c.clock.Now()))
	case lease.List:
		// The request's time limit bounds how long the listing stands still: a place with many locks may
		// need more for all of them.
		ev.Epoch, ev.Version, err = c.highest(ctx, a.After, c.settle(1))
		return c.readEvent(ctx, ev, lease.Listed, err)
	case lease.Get:
		var rec Record
		rec, ev.Age, err = c.read(ctx, a.Epoch, a.Known, c.settle(1))
		if err == nil {
			c.last, ev.Lock = rec, rec.lock()
		}
		return c.readEvent(ctx, ev, lease.Got, err)
	case lease.Depose:
		rec := c.last
		rec.State, rec.Nonce = Expired, a.Nonce
		rec.Reason, rec.ExpiredBy = lapsed, c.opts.Identity
		if a.Dead {
			rec.Reason = reclaimed
		}
		ev.Version, ev.Clean, err = c.swap(ctx, rec, a.Known)
		return c.written(ev, err)
	case lease.Create:
		c.own = c.newRecord(a)
		ev.Version, err = c.create(ctx, c.own)
		return c.written(ev, err)
	case lease.Confirm:
		c.own.Nonce, c.own.Renewed = a.Nonce, c.clock.Wall()
		ev.Version, ev.Clean, err = c.swap(ctx, c.own, a.Known)
		return c.written(ev, err)
	}
	return ev, err
}

// The reasons of locks that others have expired.
const (
	lapsed    = "lapsed"
	reclaimed = "reclaimed by a process of the same identity"
)

// newRecord is what a Create writes: the own lock or a milestone.
func (c *campaign) newRecord(a lease.Action) Record {
	now := c.clock.Wall()
	r := Record{
		Epoch: a.Epoch, State: Held, Holder: c.opts.Identity, Nonce: a.Nonce,
		Validity: c.opts.Validity, Renew: c.opts.Renew, Acquired: now, Renewed: now, Transitions: c.last.Transitions,
		Announce: c.opts.Announce,
	}
	switch {
	case a.Next > 0:
		r.State, r.Next, r.Announce = Expired, a.Next, ""
		r.Reason, r.ExpiredBy = "milestone", c.opts.Identity
	case c.last.Epoch != 0 && c.last.Holder != r.Holder:
		r.Transitions++
	}
	return r
}

// readEvent tells the store's answers from its failures.
func (c *campaign) readEvent(ctx context.Context, ev lease.Event, ok lease.Kind, err error) (lease.Event, error) {
	switch {
	case err == nil:
		ev.Kind = ok
	case errors.Is(err, store.ErrNotModified):
		ev.Kind = lease.Same
	case errors.Is(err, store.ErrNotFound):
		ev.Kind = lease.Gone
	case errors.Is(err, ErrCorrupt), errors.Is(err, ErrFormat):
		ev.Kind, ev.Err = lease.Unreadable, err
	case store.Permanent(err):
		return ev, err
	case ctx.Err() != nil:
		return ev, context.Cause(ctx)
	default:
		c.outage.Failed(err)
		ev.Kind = lease.Failed
		return ev, nil
	}
	c.outage.Answered()
	return ev, nil
}

// written tells the outcome of a write. A write that is rejected, or whose outcome
// is unknown, ends the campaign.
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

// beginTakeover begins the steps from creating a lock to leading. They may outlive
// the caller's context by one request: a lock that is created and left held would
// cost everybody a validity.
func (c *campaign) beginTakeover(ctx context.Context) {
	c.endTakeover()
	takeover, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, func() {
		c.clock.AfterFunc(c.opts.RequestTimeout, func() { cancel(context.Cause(ctx)) })
	})
	c.takeover, c.stop = takeover, func() { unlink(); cancel(context.Canceled) }
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
	told := false
	defer func() { // if a hook panics or ends its goroutine, nobody has the term
		if !told {
			_ = t.Resign(ctx)
		}
	}()
	defer t.hail() // before that
	c.opts.Logger.Info("elected", sink.Epoch(win.Epoch), zap.String("holder", c.opts.Identity), zap.Duration("waited", took.Round(time.Millisecond)))
	if h := c.opts.Hooks.Elected; h != nil {
		h(Election{Epoch: t.epoch, Took: took, Remaining: t.Remaining()})
	}
	c.tell(c.own)
	told = true
	return t
}

// log says what this candidate waits for, once for each newest lock, and when it takes
// over from one that has lapsed.
func (c *campaign) log(rec Record) {
	fields := []zap.Field{sink.Epoch(rec.Epoch), zap.String("holder", rec.Holder)}
	switch {
	case rec.State == Expired && rec.Wait > 0:
		c.opts.Logger.Info("the holder was deposed; waiting until it has stopped", append(fields, zap.String("reason", rec.Reason), zap.Duration("at_most", rec.Wait))...)
	case rec.Lapsed && rec.Reason == reclaimed:
		c.opts.Logger.Info("the lock is that of a dead process of this identity; taking it over", fields...)
	case rec.Lapsed:
		c.opts.Logger.Info("the lock has lapsed; taking over", fields...)
	case rec.Epoch != c.told.Epoch && rec.State != Expired:
		// At most so long after the holder's last heartbeat.
		c.opts.Logger.Info("waiting until the holder releases its lock or stops renewing it", append(fields, zap.Duration("at_most", rec.Validity))...)
	}
	c.told = rec
}

func (c *campaign) tell(rec Record) {
	if h := c.opts.Hooks.Leader; h != nil {
		h(rec)
	}
}
