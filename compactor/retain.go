package compactor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/internal/state"
)

// retain gives up the records that [Retain] does not keep, and releases what was given
// up.
func (p *pass) retain(ctx context.Context, s *survey) error {
	before, err := p.keepsFrom(ctx, s)
	if err != nil {
		return err
	}
	if before > s.m.Start {
		m, err := p.updater.Update(ctx, func(m *state.Change) error { return m.Truncate(before) })
		if err != nil {
			return err
		}
		p.report.Truncated = m.Start
		s.m = m
	}
	return p.release(ctx, s)
}

// release releases the segments before the start that no pin needs. A pin on a version
// holds all objects that later versions drop, so what was appended after that version's
// floor stays in the store; but a snapshot finds it through the newest manifest.
func (p *pass) release(ctx context.Context, s *survey) error {
	idle := func(upTo uint64) (bool, error) { // no segment ends at upTo or before
		for seg, err := range p.log.Segments(ctx, s.m, s.m.Held()) {
			return err == nil && seg.End > upTo, err
		}
		return true, nil
	}
	if none, err := idle(s.m.Start); err != nil || none {
		return err
	}
	// guard:start-before-pins. A compactor publishes the new start, lists the pins once more, and only
	// then drops segments.
	//
	//mutant:replace s.pins, err = p.pins(ctx, s.m, true) => err = error(nil)
	var err error
	if s.pins, err = p.pins(ctx, s.m, true); err != nil {
		return err
	}
	upTo := s.m.Start
	for _, version := range slices.Sorted(maps.Keys(s.pins.Versions)) {
		held, err := p.log.Promised(ctx, version)
		if errors.Is(err, state.ErrPruned) {
			continue // the pin came too late, and holds nothing
		}
		if err != nil {
			return err
		}
		// guard:pinned-start. A segment is dropped only if all its records are before the floor of
		// every pinned version.
		//
		// The lowest floor of all pinned versions counts. A pin that came too late may name a pruned
		// version, and a zombie may have written any floor there; a floor that is too low only keeps
		// more.
		//
		//mutant:replace min(upTo, held.Floor.Offset) => max(upTo, held.Floor.Offset)
		upTo = min(upTo, held.Floor.Offset)
	}
	if none, err := idle(upTo); err != nil || none {
		return err
	}
	m, err := p.updater.Update(ctx, func(m *state.Change) error {
		m.Release(upTo)
		return nil
	})
	if err == nil {
		s.m = m
	}
	return err
}

// keepsFrom returns the offset of the first record that [Retain] keeps.
func (p *pass) keepsFrom(ctx context.Context, s *survey) (first uint64, err error) {
	r, m := p.opts.Retain, s.m
	first = m.Start
	if r.Age > 0 {
		now := p.now(s)
		for seg, err := range p.log.Segments(ctx, m, m.Start) {
			if err != nil {
				return 0, err
			}
			// guard:retain-prefix. Retention by age gives up segments from the oldest one on, and stops
			// at the first segment that is younger than Retain.Age.
			//
			//mutant:replace break => continue
			if now.Sub(seg.To) < r.Age {
				break
			}
			first = max(first, seg.End)
		}
	}
	if r.Records > 0 && m.Floor.Offset > r.Records {
		seg, err := p.log.SegmentOf(ctx, m, m.Floor.Offset-r.Records)
		if err != nil && !errors.Is(err, state.ErrPruned) {
			return 0, err
		}
		first = max(first, seg.First)
	}
	if r.Bytes > 0 {
		var total int64
		for seg, err := range p.log.Segments(ctx, m, m.Start) {
			if err != nil {
				return 0, err
			}
			total += seg.Size
		}
		for seg, err := range p.log.Segments(ctx, m, m.Start) {
			if err != nil {
				return 0, err
			}
			if total -= seg.Size; total < r.Bytes {
				break
			}
			first = max(first, seg.End)
		}
	}
	return first, nil
}

// now is the time of day by the store's clock, or by this machine's if the store does not
// tell it.
func (p *pass) now(s *survey) time.Time {
	for _, k := range s.kept {
		if !k.Info.Date.IsZero() {
			return k.Info.Date
		}
	}
	return p.opts.Clock.Wall()
}
