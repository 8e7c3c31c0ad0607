package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// search finds the table and the end of the log, or of one of its versions.
type search struct {
	*Reader
	want SnapshotOptions

	pin   *renewer        // nil if unpinned, or if another's pin keeps the version
	m     *state.Manifest // the version that is kept
	table *state.Manifest // m with the edits before end
	end   frame.Point
}

// find fails with errMoved if a new search may succeed.
func (q *search) find(ctx context.Context) (err error) {
	if err := q.hold(ctx, q.want.Version); err != nil {
		return err
	}
	if q.want.Version != 0 {
		q.table, q.end = q.m, q.m.Floor
		return nil
	}
	e := edits{table: q.m}
	if q.end, err = q.scan(ctx, q.m, e.add); err == nil {
		err = e.apply()
	}
	q.table = e.table
	return err
}

// scan reads the chain from the floor of m, until each returns errStopped or to the
// tail, and returns where it came to.
func (r *Reader) scan(ctx context.Context, m *state.Manifest, each func(*frame.Frame) error) (frame.Point, error) {
	s := r.stream(m.Floor.Offset)
	s.m, s.refreshed, s.deliver = m, r.opts.Clock.Now(), each
	err := s.walk(ctx, m.Floor)
	if errors.Is(err, errStopped) {
		err = nil
	}
	return s.at, err
}

// edits gathers edits, and applies some at a time to a table.
type edits struct {
	table *state.Manifest
	some  []state.AppliedEdit
}

func (e *edits) add(o *frame.Frame) error {
	doc := o.Edit()
	if doc == nil {
		return nil
	}
	edit, err := state.DecodeEdit(doc)
	if err != nil {
		return fmt.Errorf("reader: %s: %w", layout.DataKey(o.Position), err)
	}
	e.some = append(e.some, state.AppliedEdit{Position: o.Position, Offset: o.Offset, Edit: edit})
	if len(e.some) < 256 {
		return nil
	}
	return e.apply()
}

func (e *edits) apply() error {
	if len(e.some) == 0 {
		return nil
	}
	after, err := e.table.Apply(e.some)
	if err != nil {
		return damaged(err)
	}
	e.table, e.some = after, nil
	return nil
}

// After returns the offset of the first record whose Record.Time is after t, or the end
// of the log if there is none: a t in the year 2100 is no error, and gives the offset of the
// next record that is appended, whatever its time will be. It is as exact as the clocks of the writers were, and for
// compacted records as their blocks, of some 1 MiB. Errors: [ErrGone] if the log begins
// later; [ErrCorrupt], [ErrFormat], the store's or ctx's. Its cost is the index of one
// segment, or the chain from the floor on.
func (r *Reader) After(ctx context.Context, t time.Time) (uint64, error) {
	for range searches {
		offset, err := r.after(ctx, t)
		if !errors.Is(err, errMoved) {
			return offset, err
		}
	}
	return 0, errFolded
}

func (r *Reader) after(ctx context.Context, t time.Time) (uint64, error) {
	m, err := r.log.Newest(ctx)
	if err != nil {
		return 0, err
	}
	for seg, err := range r.log.Segments(ctx, m, m.First()) {
		switch {
		case errors.Is(err, state.ErrPruned):
			return 0, errMoved
		case err != nil:
			return 0, err
		case seg.To.After(t):
			return r.within(ctx, m, seg, t)
		}
	}
	end, err := r.scan(ctx, m, func(o *frame.Frame) error {
		if o.Records > 0 && o.Time.After(t) {
			return errStopped
		}
		return nil
	})
	return end.Offset, err
}

// within is [Reader.After] within one segment, which has such a record.
func (r *Reader) within(ctx context.Context, m *state.Manifest, seg state.Segment, t time.Time) (uint64, error) {
	blocks, err := r.segs.Index(ctx, ref(seg))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, ErrCorrupt) {
		return 0, r.stream(seg.First).merged(ctx, seg.Key, seg.First, err)
	}
	if err != nil {
		return 0, err
	}
	offset := seg.End
	for _, b := range blocks {
		if b.Latest.After(t) {
			offset = b.First
			break
		}
	}
	if first := m.First(); offset <= first && first > 0 {
		return 0, fmt.Errorf("%w: the log begins at offset %d, which is later than %v", ErrGone, first, t)
	}
	return offset, nil
}
