package compactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

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
	n := 0 // segments copied
	next := func() {
		n++
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
		if err := p.pace(ctx, share); err != nil {
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

// levels are the rule of what to merge: by size alone, so that a record is written a
// bounded number of times, whatever the sizes of folds are.
//
// Level 0 is for segments of at least full bytes; they stay as they are. From level to
// level sizes are fanIn times smaller. Level n takes all that is smaller still. Segments
// are merged only if the result is at a higher level than each of them. So each record is
// written by its fold, and then at most once for each level.
//
// Segments that are too small together to rise wait: fewer than fanIn at each level. At
// level n it is as many as fit into full / fanIn^(n-1) bytes.
type levels struct {
	full     int64
	fanIn, n int
	// Retention gives up whole segments. So a segment must not span more records or time
	// than this; 0 is no bound.
	records uint64
	span    time.Duration
}

// floor is the least size of a segment at a level.
func (l levels) floor(level int) int64 {
	size := l.full
	for range level {
		size /= int64(l.fanIn)
	}
	return size
}

// of is the level of a segment.
func (l levels) of(size int64) int {
	least := l.full
	for level := range l.n {
		if size >= least {
			return level
		}
		least /= int64(l.fanIn)
	}
	return l.n
}

// fits tells whether segments from first to last may become one.
func (l levels) fits(first, last state.Segment) bool {
	from, to := first.From, last.To
	return (l.records == 0 || last.End-first.First <= l.records) && (l.span == 0 || to.Sub(from) <= l.span)
}

// plan picks at least two neighbours to be merged into one, from the latest run that
// qualifies. It is pure, and returns nil if there is nothing to merge.
func (l levels) plan(segs []state.Segment) []state.Segment {
	for end := len(segs); end > 0; {
		// A run ends with a segment of its highest level. Smaller segments before that
		// one belong to the run; a larger one does not.
		top := l.of(segs[end-1].Size)
		begin, total := end, int64(0)
		for begin > 0 && top > 0 && l.of(segs[begin-1].Size) >= top && l.fits(segs[begin-1], segs[end-1]) {
			begin--
			total += segs[begin].Size
		}
		if run := segs[begin:end]; len(run) > 1 && total >= l.floor(top-1) {
			// Take the oldest of the run, until the result is full, so that the rest can
			// still grow. None is full alone.
			n := 0
			for sum := int64(0); n < len(run) && sum < l.full; n++ {
				sum += run[n].Size
			}
			return run[:n]
		}
		// Smaller segments may follow larger ones: go on before the run.
		end = min(begin, end-1)
	}
	return nil
}

// merged is the segment that old ones will become. Its size is an estimate: it may
// compress a little better than its parts.
func merged(old []state.Segment) state.Segment {
	s := old[0]
	s.Size = 0
	for _, o := range old {
		s.End, s.Size = o.End, s.Size+o.Size
		if o.From.Before(s.From) {
			s.From = o.From
		}
		if o.To.After(s.To) {
			s.To = o.To
		}
	}
	return s
}
