package probe

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// A store that ignores one condition in some hundreds is found only by many requests. A write
// that must be refused is the cheapest there is: one small request, which stores nothing. So
// the probe sends many of these, all clients at once, and reads the keys once at its end.

// written is an object that is there.
type written struct {
	key   string
	stale store.Version // "" if it was never swapped
}

// refusals sends writes whose condition does not hold: creates of keys that exist, and swaps of
// versions that were replaced. None may take place.
func (p *prober) refusals(ctx context.Context) error {
	targets := p.targets()
	n := p.opts.Refusals
	if p.rewrite > 0 {
		// Each key once, and not too soon, or the store says only that.
		n = min(n, len(targets))
		if err := clock.Sleep(ctx, p.opts.Clock, p.rewrite); err != nil {
			return failed("waiting to write again", err)
		}
		for _, t := range targets {
			p.wrote[t.key] = p.opts.Clock.Now()
		}
	}
	var swappable []written
	for _, t := range targets {
		if t.stale != "" {
			swappable = append(swappable, t)
		}
	}
	if err := p.barrage(ctx, Create, targets, n, func(written) store.Condition { return store.IfAbsent() }); err != nil {
		return err
	}
	if p.rewrite > 0 {
		return nil
	}
	return p.barrage(ctx, Swap, swappable, n, func(t written) store.Condition { return store.IfMatch(t.stale) })
}

// targets returns the objects that are there for certain.
func (p *prober) targets() (all []written) {
	for _, key := range slices.Sorted(maps.Keys(p.final)) {
		if p.final[key] != nil {
			all = append(all, written{key, p.stale[key]})
		}
	}
	return all
}

// barrage sends n writes to these keys in turn, from all clients at once. What the keys hold is
// read at the end of the probe.
func (p *prober) barrage(ctx context.Context, promise string, targets []written, n int, cond func(written) store.Condition) error {
	if len(targets) == 0 {
		return nil
	}
	var mu sync.Mutex
	next := 0
	senders, sctx := errgroup.WithContext(ctx)
	for c := range p.clients {
		senders.Go(func() error {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n {
					return nil
				}
				if err := p.mustRefuse(sctx, promise, p.clients[c], targets[i%len(targets)], cond); err != nil {
					return err
				}
			}
		})
	}
	return senders.Wait()
}

// mustRefuse sends one write. If there is no answer, the key tells in the end.
func (p *prober) mustRefuse(ctx context.Context, promise string, st store.Store, t written, cond func(written) store.Condition) error {
	err := p.timed("race", func() error {
		_, err := st.Put(ctx, t.key, body("refused"), &store.PutOptions{If: cond(t)})
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	switch store.OutcomeOf(err) {
	case store.Applied:
		return p.refuse(promise, hintConditions, nil, "a write (%s) that had to be refused was acknowledged: the %d. of its kind", cond(t), p.report.Refusals+1)
	case store.Refused:
		p.report.Refusals++
	case store.Rejected:
		return p.failure(promise, "writing "+t.key, err)
	case store.Unknown:
		if ctx.Err() != nil {
			return failed("writing "+t.key, errors.Join(err, context.Cause(ctx)))
		}
	}
	return nil
}
