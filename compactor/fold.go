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
	// maxFold is how many objects become one segment at most. A compactor that dies has
	// read so many in vain, at most.
	maxFold = 1 << 16
	// maxEdits is how many bytes of edits are held until they are published; one edit may
	// exceed it.
	maxEdits = 4 << 20
)

// fold makes a segment of the objects from the floor on, as many as fit, and publishes
// it. It reports whether the segment is full, so that there may be more. Objects that
// are appended meanwhile are left for the next pass, or there would be no end.
func (p *pass) fold(ctx context.Context, m *state.Manifest, minObjects int) (newest *state.Manifest, more bool, err error) {
	if minObjects > 1 {
		if enough, err := p.enough(ctx, m, minObjects); err != nil || !enough {
			return m, false, err
		}
	}
	before, began := p.report, p.opts.Clock.Now()
	defer p.undo(before, &err)
	f := &folding{pass: p, from: m.Floor, to: m.Floor, up: p.upload(ctx, m.Floor.Offset, p.opts.segmentBytes())}
	f.Source, f.Floor = &p.chain, p.log.Floor
	if err = f.read(ctx); err == nil && !f.full {
		err = f.reached(ctx, m)
	}
	if err != nil {
		f.up.abort(err)
		return nil, false, moved(err)
	}
	if f.objects == 0 {
		f.up.abort(errEmpty)
		return m, false, nil
	}
	if m, err = f.publish(ctx); err != nil {
		return nil, false, moved(err)
	}
	if hook := p.opts.Hooks.Folded; hook != nil {
		r := p.report
		hook(Fold{
			Epoch: p.token.Epoch(), Objects: r.Folded - before.Folded, Records: r.Records - before.Records, Bytes: r.Bytes - before.Bytes,
			Floor: r.Floor, Took: p.opts.Clock.Now().Sub(began),
		})
	}
	return m, f.full, nil
}

// folding is a fold under way: what it has read, from the floor on.
//
// It does not confirm the seals that it follows. Only a compactor moves the floor, so a
// seal after the floor is genuine, unless another compactor is at work; and then
// [state.Change.Fold] is void.
type folding struct {
	*pass
	chain.Follower
	from, to frame.Point
	seals    []state.Seal
	edits    []state.AppliedEdit
	objects  int
	edited   int // bytes of edits
	full     bool
	up       *upload
}

// read reads up to the first absent slot, or until the segment is full.
func (f *folding) read(ctx context.Context) error {
	limit := f.opts.segmentBytes()
	for step, err := range f.Walk(ctx, f.from) {
		if err != nil {
			return err
		}
		if err := f.pace(ctx, step.Size); err != nil {
			return err
		}
		if err := f.add(ctx, step); err != nil {
			return f.Classify(ctx, step.From.Position, err)
		}
		f.to = step.To
		f.objects++
		f.report.Folded++
		f.report.Bytes += step.Size
		f.report.Records += uint64(step.Frame.Records)
		f.progress()
		if f.full = f.up.size() >= limit || f.objects == maxFold || f.edited >= maxEdits; f.full {
			return nil
		}
	}
	return nil
}

func (f *folding) add(ctx context.Context, step chain.Step) error {
	switch step.Frame.Kind {
	case frame.Data:
		return f.up.add(ctx, step.Frame, step.Stored)
	case frame.Seal:
		f.seals = append(f.seals, state.Seal{Position: step.From.Position, Next: step.Frame.Next, Nonce: step.Frame.Nonce, Offset: step.From.Offset})
	case frame.Edit:
		e, err := decodeEdit(step)
		if err != nil {
			return err
		}
		f.edits = append(f.edits, e)
		f.edited += len(step.Frame.Edit())
	}
	return nil
}

// reached checks that the fold has come as far as m says that the log goes.
func (f *folding) reached(ctx context.Context, m *state.Manifest) error {
	// guard:fold-missing. An absent slot before the manifest's hint is not the tail: an object is
	// missing.
	if f.to.Before(m.Tail()) {
		return f.Classify(ctx, f.to.Position, fmt.Errorf("%w: %s is missing; manifest %d says that the log was acknowledged up to %v",
			fence.ErrCorrupt, layout.DataKey(f.to.Position), m.Version, m.Tail().Position))
	}
	return nil
}

// publish completes the segment and publishes the fold.
func (f *folding) publish(ctx context.Context) (*state.Manifest, error) {
	seg, err := f.up.finish()
	if err != nil {
		return nil, err
	}
	var segs []state.Segment
	if seg != nil {
		segs = append(segs, *seg)
	}
	m, err := f.pass.publish(ctx, seg, func(m *state.Change) error { return m.Fold(f.from, f.to, f.seals, segs, f.edits) })
	if err != nil {
		return nil, f.Classify(ctx, f.from.Position, err) // corrupt: an edit that no writer commits
	}
	f.report.floor(m.Floor)
	f.report.Segments += len(segs)
	f.report.Edits += len(f.edits)
	return m, nil
}

// moved makes a fold void whose floor has moved.
func moved(err error) error {
	if errors.Is(err, chain.ErrMoved) {
		return fmt.Errorf("%w: %w", state.ErrVoid, err)
	}
	return err
}

func decodeEdit(step chain.Step) (state.AppliedEdit, error) {
	e, err := state.DecodeEdit(step.Frame.Edit())
	if err != nil {
		return state.AppliedEdit{}, fmt.Errorf("%s: %w", layout.DataKey(step.From.Position), err)
	}
	return state.AppliedEdit{Position: step.From.Position, Offset: step.From.Offset, Edit: e}, nil
}

// undo restores the report if a step has failed: what is not published has not been
// done.
func (p *pass) undo(before Report, err *error) {
	if *err != nil {
		p.report = before
	}
}

// waiting is since when this compactor has known that something waits at a floor. The
// writer's clock is not asked: it may be an hour off.
type waiting struct {
	at    fence.Position
	since clock.Instant
}

// enough reports whether minObjects wait to be folded, or the first of them has waited
// for MaxAge. It costs one GET if nothing waits, and a LIST besides if something does.
func (p *pass) enough(ctx context.Context, m *state.Manifest, minObjects int) (bool, error) {
	floor := m.Floor.Position
	_, _, err := store.Read(ctx, p.st, layout.DataKey(floor), &store.ReadOptions{Length: 1, Settle: p.opts.Settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return m.Floor.Before(m.Tail()), nil // if so, it is missing: the fold says so
	case err != nil && !errors.Is(err, store.ErrRange): // an empty object is damage: the fold says so
		return false, err
	}
	p.waits = true
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
