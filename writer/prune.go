package writer

import (
	"context"
	"errors"
	"slices"
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
	// period, by the leader's own elapsed time. Some stores make a listing by a walk through a
	// directory: in any order, and not in one moment. Without this wait: a busy leader publishes
	// four manifests a second; a reader's listing takes five minutes, and passes the places of the
	// next 1,100 manifests before they are created; the leader creates these, and deletes all older
	// ones except manifest 5, which is pinned; then the walk comes to the places of the older ones;
	// the reader, which has seen no manifest yet, sees only manifest 5, and takes it for the
	// newest.
	//
	//mutant:replace max(minWatch, p.format.Grace) => minWatch
	case p.opts.Clock.Now().Sub(p.at) < max(minWatch, p.format.Grace):
		return
	}
	if m.Version-m.PruneMark > 2*keptManifests {
		err := p.prune(ctx, min(p.version, m.Version-keptManifests))
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
func (p *pruning) prune(ctx context.Context, mark uint64) error {
	// guard:mark-first. The prune mark is published before any manifest below it is deleted.
	// Without this update: the leader lists the pins, and finds none; a reader pins the old
	// version 5, reads a mark below 5, and trusts its pin; the leader deletes manifest 5, which
	// the pin should hold.
	//
	//mutant:replace m.PruneMark = max(m.PruneMark, mark) => _ = mark
	m, err := p.updater.Update(ctx, func(m *state.Change) error {
		if m.KeepsVersions || m.Roles[layout.Compactor] != p.compactor {
			return state.ErrVoid // a compactor has begun to work, and does it
		}
		m.PruneMark = max(m.PruneMark, mark)
		return nil
	})
	if errors.Is(err, state.ErrVoid) {
		return nil
	}
	if err != nil {
		return err
	}
	// guard:mark-before-pins. A leader lists the pins after it has published the prune mark. A
	// reader creates its pin before it reads the mark. So the leader sees the pin, or the reader
	// sees the mark. Without this listing: a reader pins version 5, reads a mark below 5, and
	// trusts its pin; the leader publishes a mark above 5, and deletes manifest 5, because it
	// knows of no pin.
	//
	//mutant:replace p.log.Pins(ctx) => []state.PinInfo(nil), error(nil)
	pins, err := p.log.Pins(ctx)
	if err != nil {
		return err
	}
	pinned := map[uint64]bool{}
	for _, pin := range pins {
		pinned[pin.Version] = pinned[pin.Version] || !pin.Expired
	}
	versions, err := p.log.Versions(ctx)
	if err != nil {
		return err
	}
	var dead []string
	for v := range versions {
		// guard:pinned-manifest. A manifest below the prune mark is not deleted while a pin holds its
		// version. Without this check: a backup pins version 5, and is interrupted; the mark rises
		// above 5, and manifest 5 is deleted; the backup goes on; the objects that manifest 5 named
		// are still in the store, but the backup cannot learn their names.
		//
		//mutant:replace && !pinned[v] =>
		if v < mark && !pinned[v] {
			dead = append(dead, layout.ManifestKey(v))
		}
	}
	// In order of their numbers: so each stays at least as long as those that it replaced.
	slices.Sort(dead)
	for some := range slices.Chunk(dead, keptManifests) {
		if err := store.DeleteAll(ctx, p.st, some, p.opts.Settle); err != nil {
			return err
		}
	}
	p.opts.Logger.Info("no compactor is at work: manifests that were replaced are deleted", zap.Int("manifests", len(dead)), zap.Uint64("mark", m.PruneMark))
	return nil
}
