package compactor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/state"
)

// Truncate gives up the records before an offset, as the compactor of the token's
// epoch: no reader that comes later sees them, and the segments that hold no others
// are deleted by later passes, after the grace period and as soon as no pin holds
// them. What is not folded cannot be given up. It never takes anything back: an offset before the first record that
// there is changes nothing. Errors: as of [Compactor.Once].
func (c *Compactor) Truncate(ctx context.Context, token fence.Token, before uint64) error {
	p, err := c.begin(ctx, token)
	if err != nil {
		return err
	}
	return p.truncate(ctx, before)
}

func (p *pass) truncate(ctx context.Context, before uint64) error {
	_, err := p.updater.Update(ctx, func(m *state.Change) error { return m.Truncate(before) })
	if err != nil {
		return fmt.Errorf("compactor: %w", err)
	}
	return nil
}

// retain gives up what [Retain] says, and lets go of what was given up.
func (p *pass) retain(ctx context.Context, s *survey) error {
	before, err := p.expired(ctx, s)
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

// release lets go of the segments before the start that no pin needs. A pin on a version
// holds all that later ones drop, so what was appended behind that version's floor is
// still there; but a snapshot that reads so far finds it by the newest manifest.
func (p *pass) release(ctx context.Context, s *survey) error {
	idle := func(upTo uint64) (bool, error) { // whether none lies before it
		for seg, err := range p.log.Segments(ctx, s.m, s.m.Held()) {
			return err == nil && seg.End > upTo, err
		}
		return true, nil
	}
	if none, err := idle(s.m.Start); err != nil || none {
		return err
	}
	// guard:start-before-pins. As with the mark: a reader creates its pin and then looks
	// at the start. A pin that this listing does not show finds the start in its
	// place, and is good only if its version's floor is not before it. So what lies
	// before both the start and the floor of every pin in the listing nobody reads, now
	// or later, whenever this update lands.
	//
	//mutant:replace s.pins, err = p.pins(ctx, s.m, true) => err = error(nil)
	var err error
	if s.pins, err = p.pins(ctx, s.m, true); err != nil {
		return err
	}
	upTo := s.m.Start
	for _, version := range slices.Sorted(maps.Keys(s.pins.versions)) {
		held, err := p.log.Promised(ctx, version)
		if errors.Is(err, state.ErrPruned) {
			continue // a pin that came too late, and holds nothing
		}
		if err != nil {
			return err
		}
		// guard:pinned-start. Of all of them: one that came too late may name a number that a
		// zombie has filled, with any floor.
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

// expired returns the offset before which nothing need be kept.
func (p *pass) expired(ctx context.Context, s *survey) (before uint64, err error) {
	r, m := p.opts.Retain, s.m
	before = m.Start
	if r.Age > 0 {
		now := p.now(s)
		for seg, err := range p.log.Segments(ctx, m, m.Start) {
			if err != nil {
				return 0, err
			}
			// guard:retain-prefix. Writers' clocks differ: what is old behind what is not
			// waits for it.
			//
			//mutant:replace break => continue
			if now.Sub(seg.To) < r.Age {
				break
			}
			before = max(before, seg.End)
		}
	}
	if r.Records > 0 && m.Floor.Offset > r.Records {
		seg, err := p.log.SegmentOf(ctx, m, m.Floor.Offset-r.Records)
		if err != nil && !errors.Is(err, state.ErrPruned) {
			return 0, err
		}
		before = max(before, seg.First)
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
			before = max(before, seg.End)
		}
	}
	return before, nil
}

// now is the time of day by the store's clock, or by this machine's if the store
// does not tell it.
func (p *pass) now(s *survey) time.Time {
	for _, k := range s.kept {
		if !k.Info.Date.IsZero() {
			return k.Info.Date
		}
	}
	return p.opts.Clock.Wall()
}
