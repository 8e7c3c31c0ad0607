package reader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// cursor is one pass over a log. It is in the segments or on the chain; each time
// the floor overtakes it, it goes on in the segments at the same offset.
type cursor struct {
	*Reader
	next   uint64 // offset of the next record to deliver
	until  uint64 // and of the first that is not wanted
	follow bool
	// take gets each object of the chain and each block of a segment.
	take func(*frame.Frame) error
	// held names the segments as long as it is not nil: that of a snapshot. Behind its
	// floor also what was given up is read, as long as the pin holds it.
	held *state.Manifest
	pin  *keeper // may be nil

	m         *state.Manifest
	refreshed clock.Instant
	at        frame.Point // on the chain
}

var (
	errStopped = errors.New("reader: the caller has had enough")
	// errOvertaken: the floor has passed the place on the chain.
	errOvertaken = errors.New("reader: overtaken by the floor")
)

func (r *Reader) cursor(from uint64) *cursor {
	return &cursor{Reader: r, next: from, until: math.MaxUint64}
}

// records makes the cursor hand out records.
func (c *cursor) records(ctx context.Context, yield func(Record, error) bool) {
	c.take = func(f *frame.Frame) error {
		for off, rec := range f.All() {
			if off < c.next {
				continue
			}
			if off >= c.until {
				break
			}
			c.next = off + 1
			if !yield(Record{Offset: off, Value: rec, Time: f.Time}, nil) {
				return errStopped
			}
		}
		if c.next >= c.until {
			return errStopped
		}
		return nil
	}
	if err := c.run(ctx); err != nil {
		yield(Record{}, err)
	}
}

func (c *cursor) run(ctx context.Context) error {
	if err := c.refresh(ctx); err != nil {
		return err
	}
	oldest := uint64(Oldest) // where it begins, if it is to begin with that
	if c.next == Oldest {
		c.next = c.m.First()
		oldest = c.next
		// guard:read-oldest. The newest may have given up records that are held, and what is
		// left of the snapshot would look like all of it.
		if c.held != nil {
			c.next = min(c.held.First(), c.until)
			oldest = Oldest
		}
	}
	for c.next < c.until {
		err := c.pass(ctx)
		switch {
		case errors.Is(err, ErrGone) && c.next == oldest && c.m.First() > oldest:
			// guard:read-oldest-now. What was the oldest was given up before anything of it was
			// delivered. It was asked for by no offset, so the oldest is another one now.
			c.next = c.m.First()
			oldest = c.next
		case errors.Is(err, errStopped):
			return nil
		case !errors.Is(err, errOvertaken):
			return err
		}
	}
	return nil
}

func (c *cursor) refresh(ctx context.Context) error {
	at := c.opts.Clock.Now()
	m, err := c.log.Newest(ctx)
	if err != nil {
		return err
	}
	c.m, c.refreshed = m, at
	return nil
}

// pass delivers what the manifest at hand knows of, then what is on the chain.
func (c *cursor) pass(ctx context.Context) error {
	for _, m := range []*state.Manifest{c.held, c.m} {
		if m != nil && c.next < m.Floor.Offset {
			if err := c.segments(ctx, m); err != nil {
				return err
			}
		}
	}
	at := c.m.Floor
	if tail := c.m.Tail(); tail.Offset <= c.next {
		at = tail // nothing of interest before it
	}
	return c.walk(ctx, at)
}

// segments delivers what is in the segments of a manifest.
func (c *cursor) segments(ctx context.Context, m *state.Manifest) error {
	first := m.First()
	if c.pin != nil && c.pin.Err() == nil {
		// guard:read-given-up. What had been given up before the snapshot was taken is gone,
		// also if others hold on to it.
		//
		//mutant:replace max(m.Held(), c.pin.pin.Manifest().First()) => m.Held()
		first = max(m.Held(), c.pin.pin.Manifest().First())
	}
	if c.next < first {
		return &GoneError{Offset: c.next, First: m.First()}
	}
	for p, err := range c.segs.Read(ctx, refs(c.log.Segments(ctx, m, c.next)), c.next) {
		if err != nil {
			return c.missing(ctx, p.Ref.Key, err)
		}
		if err := c.take(p.Frame); err != nil {
			return err
		}
	}
	return nil
}

// refs names segments for package segment.
func refs(segs iter.Seq2[state.Segment, error]) iter.Seq2[segment.Ref, error] {
	return func(yield func(segment.Ref, error) bool) {
		for s, err := range segs {
			if !yield(segment.Ref{Key: s.Key, First: s.First, End: s.End, Size: s.Size, Index: s.Index}, err) {
				return
			}
		}
	}
}

// missing decides what a segment that cannot be read means, or a list of them with
// no segment's key.
func (c *cursor) missing(ctx context.Context, key string, err error) error {
	lost := errors.Is(err, store.ErrNotFound) || errors.Is(err, ErrCorrupt)
	// guard:read-held. T28: what a snapshot holds on to was given up, or the list is
	// one of an old manifest. The newest has the same records at the same offsets.
	//
	//mutant:replace c.held != nil && lost => false
	switch {
	case key == "" && errors.Is(err, state.ErrGone), c.held != nil && lost:
		c.held = nil
		if rerr := c.refresh(ctx); rerr != nil {
			return rerr
		}
		return errOvertaken
	case key == "" || !lost:
		return err
	}
	if rerr := c.refresh(ctx); rerr != nil {
		return rerr
	}
	now, serr := c.log.SegmentOf(ctx, c.m, c.next)
	if serr != nil && !errors.Is(serr, state.ErrGone) {
		return serr
	}
	// guard:read-merged. It was merged into another one and pruned if the newest
	// manifest does not name it any more; else it is damage.
	if now.Key != key {
		return errOvertaken
	}
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%w: manifest %d names segment %s, which is missing: %w", ErrCorrupt, c.m.Version, key, err)
	}
	return fmt.Errorf("reader: %w; run `fencepost verify` to see the extent", err)
}
