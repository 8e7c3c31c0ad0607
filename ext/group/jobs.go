package group

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// maxListed bounds the memory of one listing, in objects.
const maxListed = 200_000

// carryOut does one job, and gives the machine its answer.
func (g *Group) carryOut(j member.Job, left time.Duration) {
	defer g.jobs.Done()
	ctx, cancel := clock.WithTimeout(g.jobCtx, g.clock, max(left, 0), errNoAnswer)
	defer cancel()
	ev := member.Event{Kind: member.Answer, N: j.N}
	var err error
	switch j.Op {
	case member.List:
		ev.Entries, err = g.list(ctx, j.Key)
	case member.Get:
		ev.Doc, ev.Version, err = g.get(ctx, j.Key, j.Known)
	case member.Create, member.Swap, member.Put:
		ev.Version, err = g.write(ctx, j)
	case member.Delete:
		err = store.DeleteAll(ctx, g.st, j.Keys, g.settle(2))
	}
	ev.Outcome, ev.Err = outcome(ctx, j.Op, err), err
	g.step(ev)
}

// outcome tells the store's answers from its failures.
func outcome(ctx context.Context, op member.Op, err error) member.Outcome {
	write := op == member.Create || op == member.Swap || op == member.Put
	switch {
	case err == nil:
		return member.Done
	case write:
		switch store.OutcomeOf(err) {
		case store.Refused:
			return member.Refused
		case store.Rejected:
			return member.Denied
		default:
			return member.Failed
		}
	case ctx.Err() != nil:
		return member.Failed
	case errors.Is(err, store.ErrNotModified):
		return member.Same
	case errors.Is(err, store.ErrNotFound):
		return member.Absent
	case errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat):
		return member.Unreadable
	case store.Permanent(err):
		return member.Denied
	}
	return member.Failed
}

func (g *Group) list(ctx context.Context, prefix string) ([]member.Entry, error) {
	var all []member.Entry
	for info, err := range store.ListAll(ctx, g.st, prefix, nil, g.settle(1)) {
		if err != nil {
			return nil, err
		}
		if len(all) == maxListed {
			return nil, document.Corrupt(prefix, "more than %d objects are there; this is no group's", maxListed)
		}
		age := time.Duration(-1)
		if d, known := info.Age(); known {
			age = max(d, 0)
		}
		all = append(all, member.Entry{Key: info.Key, Version: info.Version, Age: age})
	}
	return all, nil
}

func (g *Group) get(ctx context.Context, key string, known store.Version) (any, store.Version, error) {
	body, info, err := store.Read(ctx, g.st, key, &store.ReadOptions{IfNoneMatch: known, Limit: limit(key), Settle: g.settle(2)})
	if errors.Is(err, store.ErrTooLarge) {
		err = document.Corrupt(key, "%v", err)
	}
	if err != nil {
		return nil, "", err
	}
	doc, err := decode(key, body)
	return doc, info.Version, err
}

func (g *Group) write(ctx context.Context, j member.Job) (store.Version, error) {
	body, err := encode(j.Key, j.Doc)
	if err != nil {
		return "", err
	}
	opts := &store.WriteOptions{Settle: g.settle(0)}
	switch j.Op {
	case member.Create:
		info, err := store.Create(ctx, g.st, j.Key, body, opts)
		return info.Version, err
	case member.Swap:
		sent := g.clock.Now()
		info, err := store.Swap(ctx, g.st, j.Key, body, j.Known, opts)
		if err == nil && j.Key == member.Key(g.name) {
			g.rate.compare(g, sent, info)
		}
		return info.Version, err
	}
	// A hint. If it is lost, the next one puts it right.
	short, cancel := clock.WithTimeout(ctx, g.clock, g.opts.RequestTimeout, errNoAnswer)
	defer cancel()
	info, err := g.st.Put(short, j.Key, body, nil)
	return info.Version, err
}

// rate compares this machine's clock with the store's.
type rate struct {
	first clock.Instant
	date  time.Time
}

const (
	// ratesAfter is over what time clocks are compared.
	ratesAfter = 10 * time.Minute
	// ratesSlack covers dates of whole seconds, and twice the time of a request.
	ratesSlack = 4 * time.Second
	// ratesTook is how long a request may take. The date of another is too old when its answer comes: perhaps this
	// process was frozen meanwhile.
	ratesTook = time.Second
)

// compare is called after each heartbeat, one at a time.
func (r *rate) compare(g *Group, sent clock.Instant, info store.Info) {
	now := g.clock.Now()
	if info.Date.IsZero() || now.Sub(sent) > ratesTook {
		return
	}
	if r.date.IsZero() {
		r.first, r.date = now, info.Date
		return
	}
	mine, theirs := now.Sub(r.first), info.Date.Sub(r.date)
	if mine < ratesAfter {
		return
	}
	if off := (mine - theirs).Abs(); off > ratesSlack+time.Duration(2*g.opts.ClockRate*float64(mine)) {
		g.opts.Logger.Error("this machine's clock, or the store's, does not run at its rate; ClockRate does not cover that, so two members may own a partition at once",
			zap.Duration("by_this_clock", mine), zap.Duration("by_the_store", theirs), zap.Float64("clock_rate", g.opts.ClockRate))
	}
	r.first, r.date = now, info.Date
}
