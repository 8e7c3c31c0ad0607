package compactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// readSize is about how much of a segment one request reads.
const readSize = 4 << 20

// merge puts one segment in the place of several, if it is time for that, and
// reports whether it did.
func (p *pass) merge(ctx context.Context, m *state.Manifest) (newest *state.Manifest, did bool, err error) {
	old := p.opts.levels().plan(promised(m))
	if old == nil {
		return m, false, nil
	}
	defer p.undone(p.report, &err)
	sum := merged(old)
	up := p.upload(ctx, sum.First, sum.Size)
	refs := func(yield func(segment.Ref, error) bool) {
		for _, s := range old {
			if !yield(segment.Ref{Key: s.Key, First: s.First, End: s.End, Size: s.Size, Index: s.Index}, nil) {
				return
			}
		}
	}
	n, read := 0, int64(0) // segments, and bytes of this one
	for piece, err := range p.segs.ReadStored(ctx, refs) {
		for n < len(old) && old[n].Key != piece.Ref.Key {
			n, read = n+1, 0
			p.report.Merged++
			p.progress()
		}
		if err == nil {
			// The frame does not tell how much of the segment it was.
			share := piece.Ref.Size * int64(piece.Records()) / int64(piece.Ref.End-piece.Ref.First)
			requests := (read+share)/readSize - read/readSize
			if read == 0 {
				requests++
			}
			read += share
			err = p.pace(ctx, requests, share)
		}
		if err == nil {
			err = up.add(ctx, piece.Frame, piece.Stored)
		}
		if err != nil {
			up.abort(err)
			return nil, false, p.judgeSegment(ctx, piece.Ref, err)
		}
	}
	p.report.Merged++
	p.progress()
	seg, err := up.finish()
	if err != nil {
		return nil, false, err
	}
	seg.From, seg.To = sum.From, sum.To
	m, err = p.publish(ctx, seg, func(m *state.Change) error { return m.Replace(old, *seg) })
	return m, err == nil, err
}

// promised are the segments of m, but for those that were given up and are only still
// named because somebody may hold on to them. Merged with others they would not go
// before these do.
func promised(m *state.Manifest) []state.Segment {
	n := 0
	for n < len(m.Segments) && m.Segments[n].End <= m.Start {
		n++
	}
	return m.Segments[n:]
}

// judgeSegment decides what a segment that cannot be read means: replaced by
// another compactor if the newest manifest does not name it any more, else
// damage.
func (p *pass) judgeSegment(ctx context.Context, s segment.Ref, err error) error {
	if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, fence.ErrCorrupt) {
		return fmt.Errorf("compactor: merging %s: %w", s.Key, err)
	}
	m, merr := p.log.Newest(ctx)
	if merr != nil {
		return merr
	}
	now, serr := p.log.SegmentOf(ctx, m, s.End-1)
	if serr != nil && !errors.Is(serr, state.ErrPruned) {
		return serr
	}
	if now.Key != s.Key {
		return fmt.Errorf("compactor: %w: another compactor has replaced %s", state.ErrVoid, s.Key)
	}
	return fmt.Errorf("compactor: %w: manifest %d names %s: %w; run `fencepost verify` to see the extent", fence.ErrCorrupt, m.Version, s.Key, err)
}
