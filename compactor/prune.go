package compactor

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// survey is what pruning goes by.
type survey struct {
	m    *state.Manifest // the newest
	kept map[uint64]state.Kept
	// horizon is the newest manifest that every reader must have seen: it has been
	// there for the grace period. It is nil if there is none.
	horizon *state.Manifest
	// mark is how far the prune mark may be raised.
	mark uint64
	// pins were listed after m was read.
	pins pins
	// epoch is the compactor's: what those before it have uploaded and never named,
	// nobody will name.
	epoch uint64
}

func (p *pass) survey(ctx context.Context, expire bool) (*survey, error) {
	m, err := p.newest(ctx)
	if err != nil {
		return nil, err
	}
	s := &survey{m: m, epoch: uint64(min(m.Roles[layout.Compactor].Epoch, p.token.Epoch()))}
	if s.kept, err = p.log.Versions(ctx); err != nil {
		return nil, err
	}
	infos := make([]store.Info, 0, len(s.kept))
	for _, k := range s.kept {
		infos = append(infos, k.Info)
	}
	aged := p.manifests.look(p.opts.Clock.Now(), infos)
	if s.horizon, err = p.horizon(ctx, m, s.kept, aged); err != nil {
		return nil, err
	}
	if s.horizon != nil {
		s.mark = p.keepVersions(s, aged)
	}
	s.pins, err = p.pins(ctx, m, expire)
	return s, err
}

// prune deletes what no reader of a manifest younger than the grace period can
// need. It is safe to run it at any time and any number of times, also by a
// zombie: everything behind a durable floor is dead, and names are never used
// again.
func (p *pass) prune(ctx context.Context) error {
	s, err := p.survey(ctx, true)
	if err != nil {
		return err
	}
	if err := p.retain(ctx, s); err != nil {
		return err
	}
	if s.horizon != nil {
		if err := p.sweep(ctx, p.data(s)); err != nil {
			return err
		}
		if err := p.pruneVersions(ctx, s); err != nil {
			return err
		}
	}
	for _, r := range append(p.orphans(s), tmp) {
		if err := p.sweep(ctx, r); err != nil {
			return err
		}
	}
	return p.abortUploads(ctx, s)
}

// horizon is described at survey.
func (p *pass) horizon(ctx context.Context, m *state.Manifest, kept map[uint64]state.Kept, age func(store.Info) time.Duration) (*state.Manifest, error) {
	// guard:grace. It is what a reader may rely on, and more: a listing that is not
	// made in one instant may miss a newest manifest that is deleted meanwhile and its
	// successor too, unless the two are there together for longer than a listing takes
	// (T37).
	//
	//mutant:replace age(k.Info) >= grace => k.Version == v
	grace := time.Duration(p.log.Format().Grace)
	var best uint64
	for v, k := range kept {
		// At or below the mark there may be junk in the holes.
		if v > m.PruneMark && v <= m.Version && (grace == 0 || age(k.Info) >= grace) {
			best = max(best, v)
		}
	}
	switch best {
	case 0:
		return nil, nil
	case m.Version:
		return m, nil
	}
	h, _, err := p.log.At(ctx, best)
	if errors.Is(err, state.ErrPruned) {
		return nil, nil // a newer one and a pruner besides us; next time
	}
	if err != nil {
		return nil, err
	}
	// guard:horizon-junk. If we have slept since m was read, others may have pruned
	// on, and a zombie may have put into the hole what it wanted to publish then: a
	// fold that never became part of the history. Its floor is beyond what is durable,
	// and all that it would let us delete is still needed. Floors only rise, so one
	// beyond that of m is junk, and with one at or behind it nothing can go wrong.
	if m.Floor.Before(h.Floor) {
		return nil, nil
	}
	return h, nil
}

// keepVersions returns the mark that keeps what the owner wants to keep. What is
// above a mark is kept whole.
func (p *pass) keepVersions(s *survey, age func(store.Info) time.Duration) uint64 {
	mark := s.horizon.Version
	versions := slices.Sorted(maps.Keys(s.kept))
	if count := p.opts.KeepVersions.Count; count > 0 {
		if count >= len(versions) {
			return 0
		}
		mark = min(mark, versions[len(versions)-1-count]-1)
	}
	if keep := p.opts.KeepVersions.Age; keep > 0 {
		// The one that was the newest so long ago, and all that came later.
		was := uint64(1)
		for v, k := range s.kept {
			if age(k.Info) >= keep {
				was = max(was, v)
			}
		}
		mark = min(mark, was-1)
	}
	return mark
}

// pruneVersions raises the prune mark and deletes the manifests before it, and what
// they alone refer to.
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
	// One is left: this writes manifests itself, and would have something to do for
	// ever on a log where nothing happens.
	if superseded <= 1 && !dead {
		return nil
	}
	if s.m.PruneMark < s.mark {
		// guard:mark-first. The mark is published before anything is deleted, so that
		// whoever reads a manifest can tell whether it is still promised.
		s.m, err = p.updater.Update(ctx, func(m *state.Change) error {
			m.PruneMark = max(m.PruneMark, s.mark)
			return nil
		})
		if err != nil {
			return err
		}
	}
	// guard:mark-before-pins. A reader creates its pin and then looks at the mark.
	// So a pin that this listing does not show will find the mark above its version,
	// and is none. One that came after the listing above, and before the mark, is
	// good, and in this one. Also if the mark is there already: an update of ours whose
	// outcome was unknown may have landed since the pins were listed.
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
	return p.sweep(ctx, p.versions(s))
}

// superseded tells whether a manifest may be deleted once the mark is published.
func (s *survey) superseded(version uint64) bool {
	// guard:pinned-manifest. It is all that its holder knows the names from.
	//
	//mutant:replace && !s.pins.versions[version] =>
	return version < s.mark && !s.pins.versions[version]
}

// upTo is up to which version what was dropped may be deleted.
func (s *survey) upTo() uint64 {
	// guard:pinned-objects. A pin on a version holds what later ones dropped.
	//
	//mutant:replace min(s.mark, s.pins.lowest) => s.mark
	return min(s.mark, s.pins.lowest)
}

func (p *pass) anyDropped(ctx context.Context, s *survey) (bool, error) {
	for d, err := range p.log.Dropped(ctx, s.m) { // in order
		return err == nil && d.Version <= s.upTo(), err
	}
	return false, nil
}

// pruneDropped deletes what was dropped, and then forgets it. Named twice or never
// is harmless: no name is used again.
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
		// guard:dropped-mark. Versions above the mark are promised, and refer to it.
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

// kindOf tells what a manifest can have dropped, "" of a name that it cannot have
// given.
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

// pins are the versions that somebody holds.
type pins struct {
	versions map[uint64]bool
	lowest   uint64 // [math.MaxUint64] if there is none
	infos    []state.PinInfo
}

// pins lists them, when m has been read. Those that have lapsed are taken away first, if
// expire says so.
func (p *pass) pins(ctx context.Context, m *state.Manifest, expire bool) (pins, error) {
	held := pins{versions: map[uint64]bool{}, lowest: math.MaxUint64}
	all, err := p.log.Pins(ctx)
	if err != nil {
		return held, err
	}
	infos := make([]store.Info, 0, len(all))
	for _, pin := range all {
		infos = append(infos, pin.Object)
	}
	unchanged := p.holds.watch(p.opts.Clock.Now(), infos)
	for _, pin := range all {
		if expire && (pin.Expired || pin.Lapsed(unchanged(pin.Object))) {
			switch gone, err := p.expire(ctx, pin, m); {
			case err != nil:
				return held, err
			case gone:
				continue
			}
		}
		if !pin.Expired {
			held.infos = append(held.infos, pin)
			held.versions[pin.Version] = true
			held.lowest = min(held.lowest, pin.Version)
		}
	}
	return held, nil
}

// expire takes a pin away that has lapsed, and reports whether it did.
func (p *pass) expire(ctx context.Context, pin state.PinInfo, m *state.Manifest) (bool, error) {
	// guard:expire-first. Deleted at once, the pin could be renewed between our look and
	// the delete, and its holder would go on believing in it. After the swap each
	// renewal is refused, and one that came before it makes the swap fail.
	if !pin.Expired {
		err := p.log.ExpirePin(ctx, pin, "not renewed for its time to live")
		if errors.Is(err, store.ErrPrecondition) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	if _, ok := layout.ParsePinKey(pin.Object.Key); !ok || !pin.Removable(m.PruneMark) {
		return true, nil
	}
	return true, p.delete(ctx, "pin", []string{pin.Object.Key})
}
