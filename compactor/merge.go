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

// merge replaces several segments by one, if the levels ask for it, and reports whether
// it did.
func (p *pass) merge(ctx context.Context, m *state.Manifest) (newest *state.Manifest, did bool, err error) {
	old := p.opts.levels().plan(mergeable(m))
	if old == nil {
		return m, false, nil
	}
	defer p.undo(p.report, &err)
	sum := merged(old)
	up := p.upload(ctx, sum.First, sum.Size)
	if ref, err := p.copy(ctx, old, up); err != nil {
		up.abort(err)
		return nil, false, p.classifySegment(ctx, ref, err)
	}
	seg, err := up.finish()
	if err != nil {
		return nil, false, err
	}
	seg.From, seg.To = sum.From, sum.To
	m, err = p.publish(ctx, seg, func(m *state.Change) error { return m.Replace(old, *seg) })
	return m, err == nil, err
}

// copy adds the records of segments to an upload. If it fails it returns the segment at
// which it did.
func (p *pass) copy(ctx context.Context, old []state.Segment, up *upload) (segment.Ref, error) {
	refs := func(yield func(segment.Ref, error) bool) {
		for _, s := range old {
			if !yield(segment.Ref{Key: s.Key, First: s.First, End: s.End, Size: s.Size, Index: s.Index}, nil) {
				return
			}
		}
	}
	n, read := 0, int64(0) // segments copied, and bytes of the one in turn
	next := func() {
		n, read = n+1, 0
		p.report.Merged++
		p.progress()
	}
	for piece, err := range p.segs.ReadStored(ctx, refs) {
		for n < len(old) && old[n].Key != piece.Ref.Key {
			next()
		}
		if err != nil {
			return piece.Ref, err
		}
		// The frame does not tell how many bytes of the segment it was.
		share := piece.Ref.Size * int64(piece.Records()) / int64(piece.Ref.End-piece.Ref.First)
		requests := (read+share)/readSize - read/readSize
		if read == 0 {
			requests++
		}
		read += share
		if err := p.pace(ctx, requests, share); err != nil {
			return piece.Ref, err
		}
		if err := up.add(ctx, piece.Frame, piece.Stored); err != nil {
			return piece.Ref, err
		}
	}
	next()
	return segment.Ref{}, nil
}

// mergeable are the segments of m, except those that were truncated and are only named
// because a pin may still need them. Merged with later ones, they would be kept for as
// long as these.
func mergeable(m *state.Manifest) []state.Segment {
	n := 0
	for n < len(m.Segments) && m.Segments[n].End <= m.Start {
		n++
	}
	return m.Segments[n:]
}

// classifySegment says what it means that a segment cannot be read. If the newest
// manifest does not name it any more, another compactor has replaced it; otherwise it is
// damage.
func (p *pass) classifySegment(ctx context.Context, s segment.Ref, err error) error {
	if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, fence.ErrCorrupt) {
		return fmt.Errorf("merging %s: %w", s.Key, err)
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
		return fmt.Errorf("%w: another compactor has replaced %s", state.ErrVoid, s.Key)
	}
	return fmt.Errorf("%w: manifest %d names %s: %w; run `fencepost verify` to see the extent", fence.ErrCorrupt, m.Version, s.Key, err)
}
