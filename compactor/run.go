package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// The elections whose locks are pruned, and the one that a compactor stands in.
const (
	logLocks       = "lock"
	compactorLocks = "compactor-lock"
)

// Run compacts whenever there is enough to do, for as long as this process is
// the compactor, and otherwise waits to become it, until ctx ends. It looks for
// something to fold each Options.Interval, and for something to prune each half
// grace period.
//
// It returns ctx's cause, or earlier what waiting cannot mend: the log is damaged,
// there is none, or the store refuses for good. A request that fails is tried
// again with the next round.
func (c *Compactor) Run(ctx context.Context) error {
	for {
		err := c.elected(ctx, func(ctx context.Context, p *pass) error {
			for {
				p.report = Report{}
				if err := p.run(ctx, c.opts.MinObjects); err != nil {
					if final(err) || ctx.Err() != nil {
						return err
					}
					c.opts.Logger.Warn("a round failed; the next one goes on", zap.Error(err))
				}
				if err := clock.Sleep(ctx, c.opts.Clock, c.opts.Interval); err != nil {
					return err
				}
			}
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, leader.ErrLost), errors.Is(err, ErrFenced):
			c.opts.Logger.Info("no longer the compactor", zap.Error(err))
		case final(err):
			return err
		default:
			c.opts.Logger.Warn("no compactor yet; trying again", zap.Error(err))
		}
		if err := clock.Sleep(ctx, c.opts.Clock, c.opts.Interval); err != nil {
			return err
		}
	}
}

// checkElection finds now what Run would find when it begins: a compactor is made when
// a program starts, and waits in the background.
func (o *Options) checkElection(st store.Store) error {
	if _, err := leader.New(st, compactorLocks, o.Leader); err != nil {
		return fmt.Errorf("compactor: Leader: %w", err)
	}
	if err := o.KeepLocks.Validate(); err != nil {
		return fmt.Errorf("compactor: KeepLocks: %w", err)
	}
	return nil
}

// RunOnce waits until this process is the compactor, does what [Compactor.Once]
// does, prunes old lock files, and makes room for others.
func (c *Compactor) RunOnce(ctx context.Context) (Report, error) {
	var report Report
	err := c.elected(ctx, func(ctx context.Context, p *pass) error {
		err := p.run(ctx, 1)
		report = p.report
		return err
	})
	return report, err
}

// election returns the options of Run's election.
func (c *Compactor) election() (o leader.Options) {
	if c.opts.Leader != nil {
		o = *c.opts.Leader
	}
	if o.Clock == nil {
		o.Clock = c.opts.Clock
	}
	o.NoPrune, o.Prune = true, leader.PruneOptions{} // pruneLocks prunes, as KeepLocks says
	if c.opts.KeepLocks != nil {
		o.Prune = *c.opts.KeepLocks
	}
	return o
}

// elected runs work while this process is the compactor.
func (c *Compactor) elected(ctx context.Context, work func(context.Context, *pass) error) error {
	// Known before anybody is elected, so that there is no election without a log.
	m, err := state.Open(ctx, c.st, &state.Options{Settle: c.opts.Settle, Clock: c.opts.Clock})
	if err != nil {
		return err
	}
	newest, err := m.Newest(ctx)
	if err != nil {
		return err
	}
	o := c.election()
	// If the log knows later epochs than the election, because tokens came from
	// elsewhere or the locks were lost, the election goes on behind them.
	o.MinEpoch = max(o.MinEpoch, uint64(newest.Roles[layout.Compactor].Epoch)+1)
	e, err := leader.New(c.st, compactorLocks, &o)
	if err != nil {
		return fmt.Errorf("compactor: %w", err)
	}
	return e.Run(ctx, func(ctx context.Context, t *leader.Term) error {
		p, err := c.begin(ctx, t.Token())
		if err != nil {
			return err
		}
		p.tidy = p.upkeep
		return work(ctx, p)
	})
}

// upkeep prunes, and lock files too, twice in each grace period: each time it lists
// the whole log.
func (p *pass) upkeep(ctx context.Context) error {
	grace := time.Duration(p.log.Format().Grace)
	now := p.opts.Clock.Now()
	if p.upkept && now.Sub(p.tidied) < grace/2 {
		return nil
	}
	if err := p.prune(ctx); err != nil {
		return err
	}
	if err := p.pruneLocks(ctx, p.st, func(n int) { p.report.count("lock", n) }); err != nil {
		return err
	}
	p.tidied, p.upkept = now, true
	return nil
}

// pruneLocks prunes the lock files of both elections in st.
func (p *pass) pruneLocks(ctx context.Context, st store.Store, count func(int)) error {
	o := p.election()
	for _, prefix := range []string{logLocks, compactorLocks} {
		e, err := leader.New(st, prefix, &o)
		if err != nil {
			return fmt.Errorf("compactor: %w", err)
		}
		n, err := e.Prune(ctx)
		count(n)
		if err != nil {
			return fmt.Errorf("compactor: %w", err)
		}
	}
	return nil
}

// RunTruncate waits until this process is the compactor, does what
// [Compactor.Truncate] does, and makes room for others.
func (c *Compactor) RunTruncate(ctx context.Context, before uint64) error {
	return c.elected(ctx, func(ctx context.Context, p *pass) error { return p.truncate(ctx, before) })
}

// final tells whether going on is useless.
func final(err error) bool {
	for _, kind := range []error{
		ErrFenced, manifest.ErrNotInitialized, fence.ErrCorrupt, fence.ErrFormat, fence.ErrLimit,
		leader.ErrOptions, leader.ErrCorrupt, leader.ErrFormat, leader.ErrInconsistent,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return store.Permanent(err)
}
