package compactor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// survey is what pruning knows of the log.
type survey struct {
	m    *state.Manifest // the newest
	kept map[uint64]state.Kept
	// horizon is the manifest of the highest number that every reader must have seen,
	// because it has been there for the grace period; nil if there is none.
	horizon *state.Manifest
	// mark is how far the prune mark may be raised.
	mark uint64
	// pins were listed after m was read.
	pins state.Pinned
	// epoch is the compactor's. What earlier epochs have uploaded and not named, no
	// manifest will ever name.
	epoch fence.Epoch
}

// survey reads all that pruning needs. It expires lapsed pins if expire says so.
func (p *pass) survey(ctx context.Context, expire bool) (*survey, error) {
	m, err := p.newest(ctx)
	if err != nil {
		return nil, err
	}
	s := &survey{m: m, epoch: min(m.Roles[layout.Compactor].Epoch, p.token.Epoch())}
	if s.kept, err = p.log.Versions(ctx); err != nil {
		return nil, err
	}
	infos := make([]store.Info, 0, len(s.kept))
	for _, k := range s.kept {
		infos = append(infos, k.Info)
	}
	age := p.manifests.ages(p.opts.Clock.Now(), infos)
	if s.horizon, err = p.horizon(ctx, m, s.kept, age); err != nil {
		return nil, err
	}
	if s.horizon != nil {
		s.mark = p.keepVersions(s, age)
	}
	s.pins, err = p.pins(ctx, m, expire)
	return s, err
}

// horizon returns what survey.horizon is.
func (p *pass) horizon(ctx context.Context, m *state.Manifest, kept map[uint64]state.Kept, age func(store.Info) time.Duration) (*state.Manifest, error) {
	// guard:grace. A compactor deletes what a manifest has made unnecessary only when that manifest is
	// at least a grace period old.
	//
	//mutant:replace age(k.Info) >= grace => k.Version == v
	grace := p.log.Format().Grace
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
		return nil, nil // another compactor prunes too; next time
	}
	if err != nil {
		return nil, err
	}
	// guard:horizon-junk. Floors only rise, so an older manifest whose floor is later than that of the
	// newest manifest is junk.
	//
	// Junk with an earlier floor does no harm.
	if m.Floor.Before(h.Floor) {
		return nil, nil
	}
	return h, nil
}

// keepVersions returns the highest mark that leaves the versions that the options keep
// above it.
func (p *pass) keepVersions(s *survey, age func(store.Info) time.Duration) uint64 {
	mark := s.horizon.Version
	versions := slices.Sorted(maps.Keys(s.kept))
	if count := p.opts.KeepVersions; count > 0 {
		if count >= len(versions) {
			return 0
		}
		mark = min(mark, versions[len(versions)-1-count]-1)
	}
	if keep := p.opts.KeepVersionsFor; keep > 0 {
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

// pins lists the pins; m was read before. If expire is true, lapsed pins are expired and
// hold nothing any more.
func (p *pass) pins(ctx context.Context, m *state.Manifest, expire bool) (state.Pinned, error) {
	all, err := p.log.Pins(ctx)
	if err != nil {
		return state.Pinned{}, err
	}
	infos := make([]store.Info, 0, len(all))
	for _, pin := range all {
		infos = append(infos, pin.Object)
	}
	unchanged := p.pinned.watch(p.opts.Clock.Now(), infos)
	var held []state.PinInfo
	for _, pin := range all {
		if expire && (pin.Expired || pin.Lapsed(unchanged(pin.Object))) {
			switch gone, err := p.expire(ctx, pin, m); {
			case err != nil:
				return state.Pinned{}, err
			case gone:
				continue
			}
		}
		held = append(held, pin)
	}
	return state.NewPinned(held), nil
}

// expire swaps a lapsed pin to expired, and then deletes its object if that may be. It
// reports whether the pin holds nothing any more.
func (p *pass) expire(ctx context.Context, pin state.PinInfo, m *state.Manifest) (bool, error) {
	// guard:expire-first. A compactor swaps a lapsed pin to expired before it deletes the pin's object.
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
	return true, p.delete(ctx, p.st, "pin", []string{pin.Object.Key})
}

// sightings are when this process first saw each version of some objects.
type sightings struct {
	mu   sync.Mutex
	seen map[string]clock.Instant
}

// watch notes the objects that there are now and forgets all others. The function that it
// returns tells for how long an object has been seen.
func (s *sightings) watch(now clock.Instant, infos []store.Info) func(store.Info) time.Duration {
	id := func(info store.Info) string { return info.Key + " " + string(info.Version) }
	seen := make(map[string]clock.Instant, len(infos))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, info := range infos {
		since, ok := s.seen[id(info)]
		if !ok {
			since = now
		}
		seen[id(info)] = since
	}
	s.seen = seen
	return func(info store.Info) time.Duration { return now.Sub(seen[id(info)]) }
}

// ages is watch for the age of each object, at least: by the store's own clock; or if the
// store tells no time, by how long this process has seen the object. Another clock, such
// as this machine's time of day, may be wrong by hours.
func (s *sightings) ages(now clock.Instant, infos []store.Info) func(store.Info) time.Duration {
	watched := s.watch(now, infos)
	return func(info store.Info) time.Duration {
		if age, known := age(info); known {
			return age
		}
		return watched(info)
	}
}

// age returns how long ago an object was written, at least, by the store's clock alone.
//
// guard:age-resolution. If a Last-Modified is a whole second, one second is subtracted from the
// object's age; if it is a whole millisecond, one millisecond.
//
//mutant:replace age - unit => age
func age(info store.Info) (age time.Duration, known bool) {
	if age, known = info.Age(); !known {
		return 0, false
	}
	for _, unit := range []time.Duration{time.Second, time.Millisecond} {
		if info.LastModified.Nanosecond()%int(unit) == 0 {
			return age - unit, true
		}
	}
	return age, true
}
