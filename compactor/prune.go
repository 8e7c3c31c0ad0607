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
	for _, r := range append(p.orphanRules(s), tmpRule) {
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
		if s.superseded(v) {
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
	// guard:mark-first. The prune mark is published before any version below it is deleted.
	// Without this update: a reader pins version 5 and finds the mark below 5, so it trusts
	// its pin; but a compactor has decided already that 5 may go, and deletes what it names.
	if s.m.PruneMark < s.mark {
		s.m, err = p.updater.Update(ctx, func(m *state.Change) error {
			m.PruneMark = max(m.PruneMark, s.mark)
			return nil
		})
		if err != nil {
			return err
		}
	}
	// guard:mark-before-pins. The pins are listed again when the prune mark is published. A
	// reader creates its pin and then reads the mark: so either this listing shows the pin,
	// or the reader finds the mark at its version or above, and gives up. Without this
	// listing: a pin is created after the earlier listing; its holder reads the mark before
	// it rises and trusts the pin; what it holds is deleted. The mark may also have risen
	// already, by an earlier update of ours whose outcome was unknown.
	//
	//mutant:replace s.pins, err = p.pins(ctx, s.m, true); err != nil => false
	if s.pins, err = p.pins(ctx, s.m, true); err != nil {
		return err
	}
	if dead, err = p.anyDropped(ctx, s); err != nil {
		return err
	}
	if dead {
		if err := p.pruneDropped(ctx, s); err != nil {
			return err
		}
	}
	return p.sweep(ctx, manifestRule(s))
}

func (p *pass) anyDropped(ctx context.Context, s *survey) (bool, error) {
	for d, err := range p.log.Dropped(ctx, s.m) { // in order
		return err == nil && d.Version <= s.upTo(), err
	}
	return false, nil
}

// pruneDropped deletes what was dropped, and then publishes that it is deleted. Deleting
// an object twice is harmless: no name is used again.
func (p *pass) pruneDropped(ctx context.Context, s *survey) error {
	upTo := s.upTo()
	keys := map[string][]string{}
	flush := func(kind string) error {
		err := p.delete(ctx, kind, keys[kind])
		keys[kind] = keys[kind][:0]
		return err
	}
	for d, err := range p.log.Dropped(ctx, s.m) {
		if err != nil {
			return err
		}
		// guard:dropped-mark. Only what versions up to the prune mark have dropped is deleted.
		// Without this check: version 9 has dropped a segment; version 8 is above the mark,
		// so it may still be pinned, and names the segment that is deleted.
		if d.Version > upTo {
			break
		}
		kind := kindOf(d.Key)
		if kind == "" {
			continue
		}
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

// kindOf returns the kind of an object that a manifest can have dropped, "" of any other
// name.
func kindOf(key string) string {
	if _, _, ok := layout.ParseSegmentKey(key); ok {
		return "segment"
	}
	if _, _, ok := layout.ParseListKey(key); ok {
		return "list"
	}
	if _, _, _, ok := layout.ParseFileKey(key); ok {
		return "file"
	}
	return ""
}
