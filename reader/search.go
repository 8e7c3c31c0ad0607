package reader

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
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
