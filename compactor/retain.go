package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
)

// Truncate gives up the records before an offset, as the compactor of the token's
// epoch: no reader that comes later sees them, and the segments that hold no others
// are deleted by later passes, after the grace period. What is not folded cannot
// be given up. It never takes anything back: an offset before the first record that
// there is changes nothing. Errors: as of [Compactor.Once].
func (c *Compactor) Truncate(ctx context.Context, token fence.Token, before uint64) error {
	p, err := c.begin(ctx, token)
	if err != nil {
		return err
	}
	return p.truncate(ctx, before)
}

func (p *pass) truncate(ctx context.Context, before uint64) error {
	_, err := p.updater.Update(ctx, func(m *manifest.Manifest) error { return m.Truncate(before) })
	if err != nil {
		return fmt.Errorf("compactor: %w", err)
	}
	return nil
}

// retain gives up what [Retain] says.
func (p *pass) retain(ctx context.Context, s *survey) error {
	before, err := p.expired(ctx, s)
	if err != nil || before <= s.m.Start {
		return err
	}
	m, err := p.updater.Update(ctx, func(m *manifest.Manifest) error { return m.Truncate(before) })
	if err != nil {
		return err
	}
	p.report.Truncated = m.Start
	s.m = m
	return nil
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
		if err != nil && !errors.Is(err, manifest.ErrGone) {
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
