package compactor

import (
	"context"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
)

// prune deletes what no reader of a manifest younger than the grace period can need. It
// may run at any time and any number of times, also in a zombie: everything before a
// durable floor is dead, and names are never used again.
func (p *pass) prune(ctx context.Context) error {
	if err := p.checkFiles(ctx); err != nil {
		return err
	}
	s, err := p.survey(ctx, true)
	if err != nil {
		return err
	}
	if err := p.retain(ctx, s); err != nil {
		return err
	}
	if s.horizon != nil {
		if err := p.sweep(ctx, p.dataRule(s)); err != nil {
			return err
		}
		if err := p.pruneVersions(ctx, s); err != nil {
			return err
		}
	}
	for _, r := range append(p.orphanRules(s), p.tmpRules()...) {
		if err := p.sweep(ctx, r); err != nil {
			return err
		}
	}
	return p.abortUploads(ctx, s)
}

// pruneVersions raises the prune mark. Then it deletes the manifests before the mark, and
// what only these refer to.
func (p *pass) pruneVersions(ctx context.Context, s *survey) error {
	superseded := 0
	for v := range s.kept {
		if s.pins.Frees(v, s.mark) {
			superseded++
		}
	}
	dead, err := p.anyDropped(ctx, s)
	if err != nil {
		return err
	}
	// One superseded manifest stays. Pruning writes a manifest itself, and would never end
	// on a log where nothing happens.
	if superseded <= 1 && !dead {
		return nil
	}
	return p.updater.Prune(ctx, s.m, &state.Pruning{
		Mark: s.mark,
		Pins: func(ctx context.Context, m *state.Manifest) (state.Pinned, error) {
			var err error
			s.m = m
			s.pins, err = p.pins(ctx, m, true)
			return s.pins, err
		},
		Objects: func(ctx context.Context) error {
			if dead, err := p.anyDropped(ctx, s); err != nil || !dead {
				return err
			}
			return p.pruneDropped(ctx, s)
		},
		Delete: func(ctx context.Context, keys []string) error { return p.delete(ctx, p.st, "manifest", keys) },
	})
}

func (p *pass) anyDropped(ctx context.Context, s *survey) (bool, error) {
	for d, err := range p.log.Dropped(ctx, s.m) { // in order
		return err == nil && d.Version <= s.pins.UpTo(s.mark), err
	}
	return false, nil
}

// pruneDropped deletes what was dropped, and then publishes that it is deleted. Deleting
// an object twice is harmless: no name is used again.
func (p *pass) pruneDropped(ctx context.Context, s *survey) error {
	upTo := s.pins.UpTo(s.mark)
	keys := map[string][]string{}
	flush := func(kind string) error {
		in := p.st
		if kind == layout.KindFile {
			in = p.files
		}
		err := p.delete(ctx, in, kind, keys[kind])
		keys[kind] = keys[kind][:0]
		return err
	}
	for d, err := range p.log.Dropped(ctx, s.m) {
		if err != nil {
			return err
		}
		// guard:dropped-mark. A compactor deletes a dropped object only if the version that dropped it
		// is at or below the prune mark.
		if d.Version > upTo {
			break
		}
		kind := layout.KindOf(d.Key) // segment, list or file (dropped-own)
		if keys[kind] = append(keys[kind], d.Key); len(keys[kind]) == deleteAt {
			if err := flush(kind); err != nil {
				return err
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(keys)) {
		if err := flush(kind); err != nil {
			return err
		}
	}
	m, err := p.updater.Update(ctx, func(m *state.Change) error {
		m.Forget(upTo)
		return nil
	})
	if err == nil {
		s.m = m
	}
	return err
}
