package compactor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Run compacts whenever there is enough to do, until ctx ends. Without [Options.Token] it
// does so while this process is the compactor, and otherwise waits to become it. It checks
// for objects to fold every Options.Interval, and prunes twice in each grace period. Both are less
// frequent if Options.IdleInterval says so.
//
// If there is no log yet, Run waits for it. It returns nil when ctx has ended; ctx's cause with the last
// failure of the store, if that did not work then; or earlier an error that
// waiting cannot mend: the log is damaged or was deleted, the token is fenced, or the store
// refuses for good. After any other error it retries an Interval later.
func (c *Compactor) Run(ctx context.Context) error {
	if c.awaitLog(ctx) != nil {
		return nil //nolint:nilerr // ctx has ended, which is no failure
	}
	for {
		err := c.inEpoch(ctx, c.rounds)
		switch {
		case ctx.Err() != nil:
			return c.ended(ctx, err)
		case !c.opts.Token.Valid() && (errors.Is(err, leader.ErrLost) || errors.Is(err, ErrFenced)):
			c.opts.Logger.Info("no longer the compactor", zap.Error(err))
		case final(err):
			return failed(ctx, err)
		default:
			c.warn("cannot compact yet; retrying", err)
		}
		if clock.Sleep(ctx, c.opts.Clock, c.opts.Interval) != nil {
			return c.ended(ctx, err)
		}
	}
}

// ended is nil, or what the store has answered, when Run ends with its context while it waited for the store.
func (c *Compactor) ended(ctx context.Context, err error) error {
	if waited, ok := errors.AsType[*outage.Error](err); ok { // for the election
		return waited
	}
	if c.outage.Told() {
		return c.outage.Explain(context.Cause(ctx))
	}
	return nil
}

// warn logs a failure that is retried, unless it has lines already.
func (c *Compactor) warn(what string, err error) {
	if !c.outage.Told() {
		c.opts.Logger.Warn(what, zap.Error(err))
	}
}

// awaitLog waits until there is a log, or ctx ends. That is one GET in each Interval, and less often the longer
// it lasts if IdleInterval says so.
func (c *Compactor) awaitLog(ctx context.Context) error {
	for n, every := 0, c.opts.Interval; ; n, every = n+1, c.idle(every) {
		_, err := c.open(ctx)
		if !errors.Is(err, manifest.ErrNotInitialized) {
			return nil // what else is wrong, the first round finds
		}
		switch {
		case n == 0:
			c.opts.Logger.Info("no log is here yet; waiting for it", zap.String("store", c.st.Traits().Where()))
		case n%remind == 0:
			c.opts.Logger.Warn("there is still no log here; is this the right place?", zap.String("store", c.st.Traits().Where()))
		}
		if err := clock.Sleep(ctx, c.opts.Clock, every); err != nil {
			return err
		}
	}
}

// idle is twice an interval, up to IdleInterval.
func (c *Compactor) idle(every time.Duration) time.Duration {
	return every + min(every, c.opts.IdleInterval-every) // twice as long may be no number
}

// remind is after how many looks a compactor without a log says so again.
const remind = 30

// rounds compacts at each Interval until ctx ends, and less often while there is nothing to do.
func (c *Compactor) rounds(ctx context.Context, p *pass) error {
	for every := c.opts.Interval; ; {
		p.report, p.waits = Report{}, false
		if err := p.run(ctx, c.opts.MinObjects); err != nil {
			if final(err) || ctx.Err() != nil {
				return err
			}
			c.warn("a round of compaction failed; retrying with the next", err)
		} else {
			c.outage.Answered()
		}
		if r := &p.report; p.waits || r.Folded > 0 || r.Merged > 0 || r.Truncated > 0 || len(r.Pruned) > 0 {
			every = c.opts.Interval
		} else {
			every = c.idle(every)
		}
		if err := clock.Sleep(ctx, c.opts.Clock, every); err != nil {
			return err
		}
	}
}

// checkElection finds now what is wrong with the options of an election. Run and Once hold
// it much later, perhaps in the background.
func (c *Compactor) checkElection() error {
	o := c.election()
	if _, err := leader.New(c.plain, layout.CompactorLockPrefix, &o); err != nil {
		return fmt.Errorf("%w: Leader: %w", ErrOptions, err)
	}
	return nil
}

// election returns the options of the compactors' election.
func (c *Compactor) election() leader.Options {
	o := *c.opts.Leader
	o.NoPrune = true              // pruneLocks does it, for both elections
	o.Drain = cmp.Or(o.Drain, -1) // nobody waits for a compactor
	o.Clock = cmp.Or(o.Clock, c.opts.Clock)
	o.Logger = cmp.Or(o.Logger, c.opts.Logger.Named("leader"))
	return o
}

// elected calls work while this process is the compactor.
func (c *Compactor) elected(ctx context.Context, work func(context.Context, *pass) error) error {
	// First, so that there is no election without a log.
	log, err := c.open(ctx)
	if err != nil {
		return err
	}
	newest, err := log.Newest(ctx)
	if err != nil {
		return err
	}
	o := c.election()
	o.Reclaim = o.Reclaim && c.campaigned.CompareAndSwap(false, true)
	// The log may know later epochs than the election, because tokens came from elsewhere
	// or the locks were lost. Then the election goes on after them.
	o.MinEpoch = max(o.MinEpoch, min(newest.Roles[layout.Compactor].Epoch, math.MaxUint64-1)+1)
	elector, err := leader.New(c.plain, layout.CompactorLockPrefix, &o)
	if err != nil {
		return err
	}
	done := false
	err = elector.Run(ctx, func(ctx context.Context, t *leader.Term) error {
		e, err := newEpoch(log, t.Token())
		if err == nil {
			err = work(ctx, c.pass(e))
		}
		done = err == nil
		return err
	})
	if err == nil && !done { // nil also says that ctx has ended
		err = context.Cause(ctx)
	}
	return err
}

// pruneIdle is after how many checks of an idle log it is pruned again.
const pruneIdle = 8

// upkeep prunes at most twice in each grace period, because pruning lists the whole log.
func (p *pass) upkeep(ctx context.Context) error {
	grace := p.log.Format().Grace
	now := p.opts.Clock.Now()
	every := grace / 2
	if p.version == p.clean {
		// There was nothing to prune, and the log has not changed since. Only pins and uploads that
		// were given up can make something superfluous.
		every = max(every, pruneIdle*p.opts.IdleInterval)
	}
	if p.upkept && now.Sub(p.tidied) < every {
		return nil
	}
	before := len(p.report.Pruned)
	if err := p.prune(ctx); err != nil {
		return err
	}
	if err := p.pruneLocks(ctx, p.plain, func(n int) { p.report.count("lock", n) }); err != nil {
		return err
	}
	p.tidied, p.upkept, p.clean = now, true, 0
	if len(p.report.Pruned) == before {
		p.clean = p.version
	}
	return nil
}

// pruneLocks prunes the locks of both elections in st, if this compactor is elected.
func (p *pass) pruneLocks(ctx context.Context, st store.Store, count func(int)) error {
	if p.opts.Token.Valid() || p.opts.Leader.NoPrune {
		return nil
	}
	o := p.election()
	for _, prefix := range []string{layout.LockPrefix, layout.CompactorLockPrefix} {
		e, err := leader.New(st, prefix, &o)
		if err != nil {
			return err
		}
		n, err := e.Prune(ctx)
		count(n)
		if err != nil {
			return err
		}
	}
	return nil
}

// final tells whether going on is useless.
func final(err error) bool {
	kinds := []error{
		ErrFenced, manifest.ErrNotInitialized, manifest.ErrFiles, manifest.ErrBackup, manifest.ErrRestoring, fence.ErrCorrupt, fence.ErrFormat, fence.ErrLimit,
		leader.ErrOptions, leader.ErrCorrupt, leader.ErrFormat, leader.ErrInconsistent,
	}
	return store.Permanent(err) || slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
