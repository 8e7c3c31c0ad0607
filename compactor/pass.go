package compactor

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// How many bytes are read ahead: of large log objects, and of segments. An upload holds
// five parts besides, of 8 MiB each on S3.
const (
	objectBytes  = 10 << 20
	segmentBytes = 8 << 20
)

// pass is the work of one epoch: one call of Once, or all rounds of Run in one term. It
// is for one goroutine.
type pass struct {
	*Compactor
	*pacer
	*epoch
	chain  chain.Source
	segs   segment.Source
	files  store.Store // nil until a second store is known to be the log's
	report Report

	waiting waiting
	waits   bool                        // this round has seen objects that are to be folded later
	tidy    func(context.Context) error // follows folding and merging: upkeep, except in tests
	tidied  clock.Instant               // when upkeep last pruned
	upkept  bool                        // whether it ever did
	version uint64                      // of the newest manifest in this round
	clean   uint64                      // the version of which upkeep has found nothing to prune, or 0
}

func (c *Compactor) pass(e *epoch) *pass {
	f := e.log.Format()
	p := &pass{
		Compactor: c, pacer: c.pacer, epoch: e,
		chain: chain.Source{Store: c.st, Log: f.Log, Limits: f.Limits, Settle: c.opts.Settle, Ahead: c.opts.Concurrency, Budget: objectBytes},
		segs:  segment.Source{Store: c.st, Log: f.Log, Limits: f.Limits, Settle: c.opts.Settle, Budget: segmentBytes},
	}
	p.chain.Keep = p.keeps
	p.tidy = p.upkeep
	if f.Files == nil {
		p.files = c.st
	}
	return p
}

// run does all that there is to do, and tells the hook. It folds if at least minObjects wait
// for it.
func (p *pass) run(ctx context.Context, minObjects int) error {
	began := p.opts.Clock.Now()
	err := p.work(ctx, minObjects)
	if hook := p.opts.Hooks.Passed; hook != nil {
		hook(Pass{Epoch: p.token.Epoch(), Report: p.report.clone(), Err: err, Took: p.opts.Clock.Now().Sub(began)})
	}
	return err
}

func (p *pass) work(ctx context.Context, minObjects int) error {
	done, err := p.opts.Budget.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := p.pace(ctx, 0); err != nil {
		return err
	}
	if err := p.checkFiles(ctx); err != nil {
		return err
	}
	m, err := p.newest(ctx)
	if err != nil {
		return err
	}
	keeps := p.opts.KeepVersions > 0 || p.opts.KeepVersionsFor > 0
	// tuning:orphan-epoch. A new compactor first publishes a manifest with its own compactor epoch.
	if m.Roles[layout.Compactor].Epoch < p.token.Epoch() || m.KeepsVersions != keeps {
		if m, err = p.updater.Update(ctx, func(m *state.Change) error { m.KeepsVersions = keeps; return nil }); err != nil {
			return err
		}
	}
	p.report.floor(m.Floor)
	defer p.progress()
	fold := func(ctx context.Context, m *state.Manifest) (*state.Manifest, bool, error) {
		return p.fold(ctx, m, minObjects)
	}
	for more := true; more; {
		if m, more, err = p.untilValid(ctx, m, fold); err != nil {
			return err
		}
		for merged := true; merged; {
			if m, merged, err = p.untilValid(ctx, m, p.merge); err != nil {
				return err
			}
		}
		// Also between two segments: a compactor that cannot keep up with the writer must
		// still delete what is folded.
		p.version = m.Version
		if err := p.tidy(ctx); err != nil {
			return err
		}
	}
	if r := p.report; r.Folded > 0 || r.Truncated > 0 || len(r.Pruned) > 0 {
		p.opts.Logger.Info("compacted", zap.Uint64("folded", r.Folded), zap.Int("segments", r.Segments),
			zap.Int("merged", r.Merged), zap.Any("pruned", r.Pruned), zap.Stringer("floor", r.Floor))
	}
	return nil
}

// checkFiles finds out once in each epoch whether the store for files is the log's.
func (p *pass) checkFiles(ctx context.Context) error {
	if p.files != nil {
		return nil
	}
	st, err := p.log.CheckFiles(ctx, true)
	if err == nil {
		p.files = &counted{st, p.pacer}
	}
	return err
}

// step does a piece of work on a manifest. It returns the newest manifest that it knows,
// and whether there may be more to do.
type step func(ctx context.Context, m *state.Manifest) (newest *state.Manifest, more bool, err error)

// untilValid takes a step, and again on a newer manifest if it was void: the floor has
// moved under it, or segments were replaced. That was an update of our own whose outcome
// was unknown, or another compactor; then newest says that we are fenced.
func (p *pass) untilValid(ctx context.Context, m *state.Manifest, take step) (*state.Manifest, bool, error) {
	for {
		newest, more, err := take(ctx, m)
		if !errors.Is(err, state.ErrVoid) {
			return newest, more, err
		}
		if m, err = p.newest(ctx); err != nil {
			return nil, false, err
		}
	}
}

// newest reads the newest manifest. It fails if a later epoch compacts: what this one
// would still do is harmless, but useless.
func (p *pass) newest(ctx context.Context) (*state.Manifest, error) {
	m, err := p.log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	if r := m.Roles[layout.Compactor]; r.Epoch > p.token.Epoch() {
		return nil, &fence.FencedError{Role: string(layout.Compactor), Epoch: p.token.Epoch(), By: r.Epoch}
	}
	return m, nil
}
