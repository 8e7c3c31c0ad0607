package writer

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

const (
	// keptManifests is how many manifests a leader leaves: one page of a listing.
	keptManifests = 1000
	// minWatch is how long a compactor must have published nothing, at least. One that works
	// folds each minute.
	minWatch = 2 * time.Minute
)

// pruning deletes manifests that were replaced, in a log where no compactor does. Without it
// a leader's own looks at the manifests, which list all of them, would take longer and longer.
// It is for the checkpointer's goroutine.
type pruning struct {
	*Writer
	updater *state.Updater
	// Since at this process has seen version as the newest, and compactor as the last update
	// of a compactor.
	at        clock.Instant
	version   uint64
	compactor state.RoleState
	off       bool // the store does not allow it
}

// look begins a new watch.
func (p *pruning) look(m *state.Manifest) {
	p.at, p.version, p.compactor = p.opts.Clock.Now(), m.Version, m.Roles[layout.Compactor]
}

// after is called with each manifest that a checkpoint has published.
func (p *pruning) after(ctx context.Context, m *state.Manifest) {
	idle := p.version > 0 && p.compactor == m.Roles[layout.Compactor]
	switch {
	case p.off, m.KeepsVersions:
		return
	case !idle:
		p.look(m)
		return
	// guard:grace. A leader deletes a manifest only when a newer one has replaced it for the grace
	// period, by the leader's own elapsed time.
	//
	//mutant:replace max(minWatch, p.format.Grace) => minWatch
	case p.opts.Clock.Now().Sub(p.at) < max(minWatch, p.format.Grace):
		return
	}
	if m.Version-m.PruneMark > 2*keptManifests {
		err := p.prune(ctx, m, min(p.version, m.Version-keptManifests))
		switch {
		case errors.Is(err, store.ErrDenied):
			p.off = true
			fallthrough
		case err != nil && ctx.Err() == nil:
			p.opts.Logger.Warn("manifests that were replaced could not be deleted; run a compactor, or give the leader the rights of `writer` in docs/policies.md", zap.Error(err))
		}
	}
	p.look(m)
}

// prune deletes the manifests before a version, unless a pin holds them.
func (p *pruning) prune(ctx context.Context, m *state.Manifest, mark uint64) error {
	err := p.updater.Prune(ctx, m, &state.Pruning{
		Mark: mark,
		May: func(m *state.Manifest) error {
			if m.KeepsVersions || m.Roles[layout.Compactor] != p.compactor {
				return state.ErrVoid // a compactor has begun to work, and does it
			}
			return nil
		},
		Pins: func(ctx context.Context, _ *state.Manifest) (state.Pinned, error) {
			pins, err := p.log.Pins(ctx)
			return state.NewPinned(pins), err
		},
		Delete: func(ctx context.Context, dead []string) error {
			err := store.DeleteAll(ctx, p.st, dead, p.opts.Settle)
			if err == nil {
				p.opts.Logger.Info("no compactor is at work: manifests that were replaced are deleted", zap.Int("manifests", len(dead)), zap.Uint64("mark", mark))
			}
			return err
		},
	})
	if errors.Is(err, state.ErrVoid) {
		return nil
	}
	return err
}
