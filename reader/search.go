package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
)

// search finds the table and the end of a log at one moment.
type search struct {
	*Reader
	want SnapshotOptions

	pin   *renewer        // nil if unpinned, or if another's pin keeps the version
	m     *state.Manifest // the version that is kept
	table *state.Manifest // m with the edits before end
	end   frame.Point
	// noCursor: nothing says any more what the producer's cursor was at the end.
	noCursor bool
}

// find fails with errMoved if a new search may succeed.
func (q *search) find(ctx context.Context) error {
	at := q.want.At
	if at.by == byVersion {
		if err := q.hold(ctx, at.number); err != nil {
			return err
		}
		q.table, q.end = q.m, q.m.Floor
		return nil
	}
	if err := q.hold(ctx, 0); err != nil {
		return err
	}
	switch {
	case at.by == "":
		_, err := q.replay(ctx, func(*frame.Frame) bool { return false })
		return err
	case at.number < q.m.Floor.Offset:
		return q.folded(ctx, at.number)
	}
	return q.reach(ctx, at.number)
}

// replay applies the edits on the chain, from the floor up to the first object at which
// stop returns true, or to the tail.
func (q *search) replay(ctx context.Context, stop func(*frame.Frame) bool) (stopped bool, err error) {
	e := edits{table: q.m}
	q.end, err = q.Reader.scan(ctx, q.m, func(o *frame.Frame) error {
		if stopped = stop(o); stopped {
			return errStopped
		}
		return e.add(o)
	})
	if err == nil {
		err = e.apply()
	}
	q.table = e.table
	return stopped, err
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

// reach finds an offset that is not folded.
func (q *search) reach(ctx context.Context, end uint64) error {
	// An edit that lies before the record at end counts.
	stopped, err := q.replay(ctx, func(o *frame.Frame) bool { return o.Offset+uint64(o.Records) > end })
	if err != nil {
		return err
	}
	if !stopped && q.end.Offset < end {
		return fmt.Errorf("%w: offset %d; the log ends at %d", ErrAhead, end, q.end.Offset)
	}
	q.end.Offset = end // it may lie within the object at which the replay has stopped
	return nil
}

// folded finds an offset before the floor. The table there is the manifest's own if no
// edit came after it. Otherwise it is not known: edits that are folded cannot be undone.
func (q *search) folded(ctx context.Context, end uint64) error {
	if first := q.m.First(); end < first {
		return &GoneError{Offset: end, First: first}
	}
	if q.m.EditedAt > end {
		had, err := q.versions(ctx)
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: the table at offset %d: an edit at offset %d is folded; possible are an offset of %d or more, or %s",
			ErrGone, end, q.m.EditedAt, q.m.EditedAt, had)
	}
	q.table, q.noCursor = q.m, true
	q.end = frame.Point{Position: q.m.Floor.Position, Offset: end}
	return nil
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
