package reader

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// stream is one loop over the log. It reads the segments and then the chain. Each time
// the floor passes its position on the chain, it goes on in the segments at the same
// offset.
type stream struct {
	*Reader
	next  uint64 // offset of the next record to deliver
	until uint64 // offset of the first record that is not wanted
	tail  bool   // wait at the tail for more
	few   bool   // probably one object has come at most
	told  bool   // the hooks are told: the caller gets records
	// deliver gets each object of the chain and each block of a segment.
	deliver func(*frame.Frame) error
	// newest reads the newest manifest, if that is not just Log.Newest.
	newest func(context.Context) (*state.Manifest, error)
	// pinned is the snapshot's version, whose segments are read first; nil if there is
	// none, or no longer. pin is the snapshot's own pin; nil if there is none.
	pinned *state.Manifest
	pin    *renewer

	m         *state.Manifest // the newest one, when it was last read
	refreshed clock.Instant   // when that was
	at        frame.Point     // the position on the chain
	came      clock.Instant   // when the last object came
	fromFloor bool            // a walk from a hint has met damage
	push      push            // what Options.Push says
}

func (r *Reader) stream(from uint64) *stream {
	return &stream{Reader: r, next: from, until: math.MaxUint64}
}

// records yields the records that are wanted.
func (s *stream) records(ctx context.Context, yield func(Record, error) bool) {
	s.told = true
	s.deliver = func(f *frame.Frame) error {
		taken := Delivery{Time: f.Time}
		defer func() { s.delivered(taken) }()
		for off, rec := range f.All() {
			if off < s.next {
				continue
			}
			if off >= s.until {
				break
			}
			s.next = off + 1
			taken.Records++
			taken.Bytes += int64(len(rec))
			if !yield(Record{Offset: off, Value: rec, Time: f.Time}, nil) {
				return errStopped
			}
		}
		if s.next >= s.until {
			return errStopped
		}
		return nil
	}
	if err := s.run(ctx); err != nil {
		yield(Record{}, err)
	}
}

// delivered tells the hook what the caller took.
func (s *stream) delivered(d Delivery) {
	if hook := s.opts.Hooks.Delivered; hook != nil && d.Records > 0 {
		d.Next = s.next
		hook(d)
	}
}

func (s *stream) run(ctx context.Context) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	oldest := Oldest // where the stream begins, if it was asked for Oldest
	if s.next == Oldest {
		s.next = s.m.First()
		oldest = s.next
		// guard:read-oldest. The oldest record of a snapshot is the first one of the snapshot's own
		// version.
		if s.pinned != nil {
			s.next = min(s.pinned.First(), s.until)
			oldest = Oldest
		}
	}
	for s.next < s.until {
		err := s.pass(ctx)
		switch {
		case errors.Is(err, ErrGone) && s.next == oldest && s.m.First() > oldest:
			// guard:read-oldest-now. A stream that was asked for Oldest begins at the record that is
			// the oldest when the first record is delivered.
			s.next = s.m.First()
			oldest = s.next
		case errors.Is(err, errStopped):
			return nil
		case !errors.Is(err, errMoved):
			return err
		}
	}
	return nil
}

// refresh reads the newest manifest.
func (s *stream) refresh(ctx context.Context) error {
	at, newest := s.opts.Clock.Now(), s.newest
	if newest == nil {
		newest = s.log.Newest
	}
	m, err := newest(ctx)
	if err != nil {
		return err
	}
	s.m, s.refreshed = m, at
	return nil
}

// pass delivers what the segments hold, and then what is on the chain.
func (s *stream) pass(ctx context.Context) error {
	for _, m := range []*state.Manifest{s.pinned, s.m} {
		if m != nil && s.next < m.Floor.Offset {
			if err := s.segments(ctx, m); err != nil {
				return err
			}
		}
	}
	at := s.m.Floor
	if hint := s.m.Tail(); hint.Offset <= s.next && !s.fromFloor {
		at = hint // nothing that is wanted comes before it
	}
	err := s.walk(ctx, at)
	// guard:read-hint-fits. A reader that begins at the manifest's hint and meets damage begins again
	// at the floor, before it calls the log damaged.
	if errors.Is(err, chain.ErrDamaged) && at.Position != s.m.Floor.Position && !s.fromFloor {
		s.fromFloor = true
		return errMoved
	}
	return err
}

// segments delivers what the segments of a manifest hold.
func (s *stream) segments(ctx context.Context, m *state.Manifest) error {
	first := m.First()
	if s.pin != nil && s.pin.Err() == nil {
		// guard:read-given-up. A snapshot has no records that were given up before it was taken, even
		// while another pin keeps their segments.
		//
		//mutant:replace max(m.Held(), s.pin.pin.Manifest().First()) => m.Held()
		first = max(m.Held(), s.pin.pin.Manifest().First())
	}
	if s.next < first {
		return &GoneError{Offset: s.next, First: m.First()}
	}
	for p, err := range s.segs.Read(ctx, refs(s.log.Segments(ctx, m, s.next)), s.next) {
		if err != nil {
			return s.unreadable(ctx, p.Ref.Key, err)
		}
		if err := s.deliver(p.Frame); err != nil {
			return err
		}
	}
	return nil
}

// ref names a segment for package segment.
func ref(s state.Segment) segment.Ref {
	return segment.Ref{Key: s.Key, First: s.First, End: s.End, Size: s.Size, Index: s.Index}
}

func refs(segs iter.Seq2[state.Segment, error]) iter.Seq2[segment.Ref, error] {
	return func(yield func(segment.Ref, error) bool) {
		for s, err := range segs {
			if !yield(ref(s), err) {
				return
			}
		}
	}
}

// unreadable classifies the error of a segment, or of a list of segments if key is
// empty.
func (s *stream) unreadable(ctx context.Context, key string, err error) error {
	lost := errors.Is(err, store.ErrNotFound) || errors.Is(err, ErrCorrupt)
	// guard:read-held. A stream that cannot read an object of its pinned version goes on with the
	// newest manifest.
	//
	//mutant:replace s.pinned != nil && lost => false
	switch {
	case key == "" && errors.Is(err, state.ErrPruned), s.pinned != nil && lost:
		s.pinned = nil
		if err := s.refresh(ctx); err != nil {
			return err
		}
		return errMoved
	case key == "" || !lost:
		return err
	}
	return s.merged(ctx, key, s.next, err)
}

// merged classifies the error of a segment that a manifest names for a record: errMoved
// if a merge has replaced it, damage otherwise.
func (s *stream) merged(ctx context.Context, key string, offset uint64, err error) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	now, serr := s.log.SegmentOf(ctx, s.m, offset)
	if serr != nil && !errors.Is(serr, state.ErrPruned) {
		return serr
	}
	// guard:read-merged. An unreadable segment is damage only if the newest manifest still names it.
	if now.Key != key {
		return errMoved
	}
	if errors.Is(err, store.ErrNotFound) {
		err = fmt.Errorf("%w: manifest %d names segment %s, which is missing: %w", ErrCorrupt, s.m.Version, key, err)
	}
	return damaged(err)
}
