package verify

import (
	"context"
	"errors"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// maxWindow is how far beyond an empty slot a writer may have sent others.
const maxWindow = 1 << 16

// walk reads the chain from the floor to its end, and behind damage goes on with
// whatever can still be read.
func (v *verifier) walk(ctx context.Context) error {
	at := v.m.Floor
	hint := v.m.Hint // must be passed exactly
	v.table, v.report.Edits = v.m, 0
	// lost is true behind damage: nobody knows then what should come next, and an
	// absent slot is no second finding.
	lost := false
	for {
		var failed error
		for step, err := range v.chain.Walk(ctx, at) {
			if err != nil {
				failed = err
				break
			}
			if step.Frame.Kind == frame.Seal {
				// A seal in a hole left by pruning is a zombie opener's junk.
				if err := v.stillThere(ctx, step.From.Position); err != nil {
					return err
				}
				v.sealed[step.From.Position.Epoch] = step.From.Position.Seq
			}
			v.edit(step.Frame)
			v.checkHint(&hint, step.From, step.To, lost)
			at = step.To
			v.next = max(v.next, at.Offset)
			v.report.Slots++
			v.report.Bytes += step.Size
			v.done += step.Size
			v.opts.Progress(Progress{Stage: "chain", Done: v.done})
		}
		switch {
		case failed != nil && !damage(failed):
			return failed
		case failed != nil:
			// Once more: it may have been the way here. The manifest is read after it: if
			// the floor has not passed the slot even then, there was no junk in a hole.
			switch _, err := v.chain.Read(ctx, at); {
			case err == nil, errors.Is(err, store.ErrNotFound):
				continue
			case !damage(err):
				return err
			}
			if err := v.stillThere(ctx, at.Position); err != nil {
				return err
			}
			v.problem(layout.DataKey(at.Position), restore, "%s; readers cannot go past it", about(layout.DataKey(at.Position), failed))
		default:
			missing, err := v.missing(ctx, at, lost)
			if err != nil {
				return err
			}
			if missing == "again" {
				continue
			}
			if missing == "" && !lost {
				v.checkHint(&hint, at, at, lost)
				v.report.Tail, v.report.End = at.Position, at.Offset
				return nil
			}
			if missing != "" {
				v.problem(layout.DataKey(at.Position), restore, "it is missing: %s; readers cannot go past it", missing)
			}
		}
		if !lost {
			v.report.Tail, v.report.End = at.Position, at.Offset
		}
		lost, hint, v.table = true, nil, nil
		next, err := v.resume(ctx, at.Position)
		if err != nil || next == nil {
			return err
		}
		at = *next
	}
}

// stillThere returns errOvertaken if the floor has passed a slot.
func (v *verifier) stillThere(ctx context.Context, p fence.Position) error {
	if err := v.refresh(ctx); err != nil {
		return err
	}
	if v.m.Past(p) {
		return errOvertaken
	}
	return nil
}

// checkHint compares the hint of the manifest with the chain, once that reaches
// it.
func (v *verifier) checkHint(hint **frame.Point, from, to frame.Point, lost bool) {
	h := *hint
	if h == nil || lost {
		return
	}
	const remedy = "if the chain is whole, the next checkpoint of a writer replaces the hint; otherwise " + restore
	switch {
	case from.Position == h.Position:
		*hint = nil
		if !from.Equal(*h) {
			v.problem(layout.ManifestKey(v.m.Version), remedy, "its hint at %v has offset %d and checksum %08x, on the chain there are %d and %08x",
				h.Position, h.Offset, h.Prev, from.Offset, from.Prev)
		}
	case h.Position.Before(to.Position):
		*hint = nil
		v.problem(layout.DataKey(from.Position), keep+"; "+restore, "the chain leaves epoch %d here, but a manifest says that it was acknowledged up to %v", from.Position.Epoch, h.Position)
	}
}

// missing judges an absent slot at the end of the walk. It returns why there
// must be an object, "" if the log may end here, or "again" if there is one now.
//
// A gap with objects behind it is no proof: a leader has many requests under way,
// and one that was killed leaves gaps.
func (v *verifier) missing(ctx context.Context, at frame.Point, lost bool) (string, error) {
	if lost {
		return "", nil
	}
	// In this order. Whatever says that the slot is taken is read first, then the
	// slot, then the manifest that tells whether it has been pruned.
	if err := v.stillThere(ctx, at.Position); err != nil {
		return "", err
	}
	why := ""
	if h := v.m.Hint; h != nil && at.Position.Before(h.Position) {
		why = "manifest " + layout.FormatNumber(v.m.Version) + " says that the log was acknowledged up to " + h.Position.String()
	} else {
		witness, err := v.witness(ctx, at.Position)
		if err != nil {
			return "", err
		}
		if witness != "" {
			why = witness + " could not be there otherwise"
		}
	}
	if why == "" {
		return "", nil
	}
	if _, err := v.chain.Read(ctx, at); !errors.Is(err, store.ErrNotFound) {
		return "again", nil
	}
	return why, v.stillThere(ctx, at.Position)
}

// witness returns an object that proves that slot p was taken: data of a later
// epoch, which begins with a seal on p or behind it, or data too far ahead. Openers
// put seals as far ahead as they like.
func (v *verifier) witness(ctx context.Context, p fence.Position) (string, error) {
	var seals []fence.Position // small objects: most are seals, and prove nothing
	for info, err := range store.ListAll(ctx, v.st, layout.DataPrefix, nil, v.opts.Settle) {
		if err != nil {
			return "", err
		}
		q, ok := layout.ParseDataKey(info.Key)
		switch {
		case !ok || !p.Before(q) || q.Epoch == p.Epoch && q.Seq-p.Seq < maxWindow:
		case info.Size > frame.HeaderSize:
			return info.Key, nil
		case len(seals) < 64:
			seals = append(seals, q)
		}
	}
	for _, q := range seals {
		h, err := v.header(ctx, q)
		switch {
		case err == nil && h.Kind == frame.Data:
			return layout.DataKey(q), nil
		case err != nil && !damage(err):
			return "", err
		}
	}
	return "", nil
}

// header reads the header of a slot and checks that it belongs there.
func (v *verifier) header(ctx context.Context, p fence.Position) (frame.Header, error) {
	b, _, err := store.Read(ctx, v.st, layout.DataKey(p), &store.ReadOptions{Length: frame.HeaderSize, Settle: v.opts.Settle})
	if err != nil {
		return frame.Header{}, err
	}
	h, err := frame.DecodeHeader(b)
	if err == nil && (h.Log != v.report.Log || h.Position != p) {
		err = fence.ErrCorrupt
	}
	return h, err
}

// resume finds the next slot behind damage that can be read, so that all of the
// damage is found. It returns nil if there is none. The objects in between are
// reported.
func (v *verifier) resume(ctx context.Context, p fence.Position) (*frame.Point, error) {
	after := p
	for {
		// A page of what comes behind, in order; listings have none.
		const page = 4096
		var slots []fence.Position
		for info, err := range store.ListAll(ctx, v.st, layout.DataPrefix, nil, v.opts.Settle) {
			if err != nil {
				return nil, err
			}
			if q, ok := layout.ParseDataKey(info.Key); ok && after.Before(q) {
				if slots = append(slots, q); len(slots) >= 2*page {
					slots = lowest(slots, page)
				}
			}
		}
		slots = lowest(slots, page)
		if len(slots) == 0 {
			return nil, nil
		}
		for _, q := range slots {
			if !after.Before(q) {
				continue
			}
			after = q
			switch h, err := v.header(ctx, q); {
			case err == nil && h.Kind == frame.Data:
				return &frame.Point{Position: q, Offset: h.Offset, Prev: h.Prev}, nil
			case err == nil:
				// What is behind a seal is void. It says nothing of the offset, so the walk
				// begins again with the data behind it.
				after = fence.Position{Epoch: h.Next}
			case !damage(err):
				return nil, err
			case !errors.Is(err, store.ErrNotFound):
				v.problem(layout.DataKey(q), restore, "behind other damage: %s", about(layout.DataKey(q), err))
			}
		}
	}
}

func lowest(slots []fence.Position, n int) []fence.Position {
	slices.SortFunc(slots, func(a, b fence.Position) int { return a.Compare(b) })
	slots = slices.Compact(slots)
	return slots[:min(n, len(slots))]
}
