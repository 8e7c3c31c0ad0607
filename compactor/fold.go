package compactor

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

const (
	// maxFold is how many objects become one segment at most. What a compactor that
	// dies has read and not yet published is read again.
	maxFold = 1 << 16
	// maxEdits is how many bytes of edits are held until they are published; one may
	// exceed it.
	maxEdits = 4 << 20
)

// fold makes a segment of the objects from the floor on, as many as fit, and
// publishes it. It reports whether there is more: the segment is full. A tail
// that grows while it is folded is left for the next pass, or there would be no
// end.
func (p *pass) fold(ctx context.Context, m *state.Manifest, minObjects int) (newest *state.Manifest, more bool, err error) {
	if minObjects > 1 {
		if enough, err := p.enough(ctx, m, minObjects); err != nil || !enough {
			return m, false, err
		}
	}
	defer p.undone(p.report, &err)
	from, to := m.Floor, m.Floor
	var seals []state.Seal
	var edits []state.AppliedEdit
	objects, edited, full := 0, 0, false
	limit := p.opts.segmentBytes()
	up := p.upload(ctx, from.Offset, limit)
	for step, err := range p.chain.Walk(ctx, from) {
		if err == nil {
			err = p.pace(ctx, 1, step.Size)
		}
		if err == nil && step.Frame.Kind == frame.Data {
			err = up.add(ctx, step.Frame, step.Stored)
		}
		if err == nil && step.Frame.Kind == frame.Edit {
			var e state.AppliedEdit
			if e, err = decodeEdit(step); err == nil {
				edits = append(edits, e)
				edited += len(step.Frame.Edit())
			}
		}
		if err != nil {
			up.abort(err)
			return nil, false, p.judge(ctx, from, err)
		}
		if step.Frame.Kind == frame.Seal {
			// Only a compactor moves the floor, so a seal at or behind it is genuine
			// unless another compactor is at work; then the fold is void.
			seals = append(seals, state.Seal{Position: step.From.Position, Next: step.Frame.Next, Nonce: step.Frame.Nonce, Offset: step.From.Offset})
		}
		to = step.To
		objects++
		p.report.Folded++
		p.report.Bytes += uint64(step.Size)
		p.report.Records += uint64(step.Frame.Records)
		p.progress()
		if full = up.size() >= limit || objects == maxFold || edited >= maxEdits; full {
			break
		}
	}
	if !full && to.Before(m.Tail()) {
		// guard:fold-missing. The hint of a manifest that was read before the walk is behind acknowledged
		// objects, so an absent slot before it is no tail.
		up.abort(errEmpty)
		return nil, false, p.judge(ctx, from, fmt.Errorf("%w: %s is missing; manifest %d says that the log was acknowledged up to %v",
			fence.ErrCorrupt, layout.DataKey(to.Position), m.Version, m.Tail().Position))
	}
	if objects == 0 {
		up.abort(errEmpty)
		return m, false, nil
	}
	seg, err := up.finish()
	if err != nil {
		return nil, false, err
	}
	var segs []state.Segment
	if seg != nil {
		segs = append(segs, *seg)
	}
	published, err := p.publish(ctx, seg, func(m *state.Change) error { return m.Fold(from, to, seals, segs, edits) })
	if errors.Is(err, fence.ErrCorrupt) {
		return nil, false, p.judge(ctx, from, err) // an edit that no writer commits
	}
	if err != nil {
		return nil, false, err
	}
	m = published
	p.report.Floor = m.Floor
	p.report.Segments += len(segs)
	p.report.Edits += len(edits)
	return m, full, nil
}

func decodeEdit(step chain.Step) (state.AppliedEdit, error) {
	e, err := state.DecodeEdit(step.Frame.Edit())
	if err != nil {
		return state.AppliedEdit{}, fmt.Errorf("%s: %w", layout.DataKey(step.From.Position), err)
	}
	return state.AppliedEdit{Position: step.From.Position, Offset: step.From.Offset, Edit: e}, nil
}

// undone takes back what a step has counted if it failed: what is not published
// has not been done.
func (p *pass) undone(before Report, err *error) {
	if *err != nil {
		p.report = before
	}
}

// waiting is since when this compactor has known that something waits at a
// floor. The writer's clock is not asked: it may be an hour off.
type waiting struct {
	at    fence.Position
	since clock.Instant
}

// enough reports whether so many objects wait, or the first of them for so long,
// that a fold is worth its requests. It costs a GET if nothing waits, and a LIST
// too if something does.
func (p *pass) enough(ctx context.Context, m *state.Manifest, minObjects int) (bool, error) {
	floor := m.Floor.Position
	_, _, err := store.Read(ctx, p.st, layout.DataKey(floor), &store.ReadOptions{Length: 1, Settle: p.opts.Settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return m.Floor.Before(m.Tail()), nil // missing, then: for the fold to tell
	case err != nil && !errors.Is(err, store.ErrRange): // an empty one is damage, for the fold to tell
		return false, err
	}
	now := p.opts.Clock.Now()
	if p.waiting.at != floor {
		p.waiting = waiting{floor, now}
	}
	if now.Sub(p.waiting.since) >= p.opts.MaxAge {
		return true, nil
	}
	waits := map[string]bool{layout.DataKey(floor): true} // a listing may repeat itself
	for info, err := range store.ListAll(ctx, p.st, layout.DataPrefix, &store.ListOptions{StartAfter: layout.DataKey(floor)}, p.opts.Settle) {
		if err != nil {
			return false, err
		}
		if pos, ok := layout.ParseDataKey(info.Key); ok && floor.Before(pos) {
			waits[info.Key] = true
		}
		if len(waits) >= minObjects {
			return true, nil
		}
	}
	return false, nil
}

// judge decides what an unreadable object of the chain means.
func (p *pass) judge(ctx context.Context, from frame.Point, err error) error {
	if !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrLimit) {
		return err
	}
	m, merr := p.log.Newest(ctx)
	if merr != nil {
		return merr
	}
	if !m.Floor.Equal(from) {
		return fmt.Errorf("compactor: %w: the floor has moved while it was folded", state.ErrVoid)
	}
	return fmt.Errorf("compactor: nothing is folded beyond the damage: %w; run `fencepost verify` to see the extent", err)
}
