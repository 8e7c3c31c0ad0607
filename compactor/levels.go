package compactor

import (
	"time"

	"github.com/fencepost/fencepost/internal/state"
)

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
