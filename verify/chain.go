package verify

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
)

// follower follows the chain, and classifies damage by the newest manifest.
func (v *verifier) follower(confirmed bool) *chain.Follower {
	return &chain.Follower{Source: &v.chain, Confirmed: confirmed, Floor: func(ctx context.Context) (fence.Position, error) {
		if err := v.refresh(ctx); err != nil {
			return fence.Position{}, err
		}
		return v.m.Floor.Position, nil
	}}
}

// walk is one reading of the chain.
type walk struct {
	*verifier
	*chain.Follower
	at   frame.Point
	hint *frame.Point // of the manifest, which the chain must pass exactly; nil once it has
	// lost is true after damage. Nobody knows then what should come next, so an absent slot
	// is no second finding.
	lost bool
	// again is the slot that is being read once more, and why it must hold an object, if
	// that is what is wrong.
	again fence.Position
	why   string
}

// walk reads the chain from the floor to the tail. After damage it goes on with whatever
// can still be read.
func (v *verifier) walk(ctx context.Context) error {
	w := &walk{verifier: v, Follower: v.follower(true), at: v.m.Floor, hint: v.m.Hint}
	v.table, v.report.Edits = v.m, 0
	for {
		wrong, err := w.outline(ctx)
		if wrong == "" && err == nil {
			wrong, err = w.toTail(ctx)
		}
		switch {
		case err != nil:
			return err
		case wrong == "" && !w.lost:
			w.checkHint(w.at, w.at)
			v.report.Tail, v.report.End = w.at.Position, w.at.Offset
			return nil
		case wrong != "":
			v.problem(layout.DataKey(w.at.Position), restore, "%s; readers cannot go past it", wrong)
		}
		if !w.lost {
			v.report.Tail, v.report.End = w.at.Position, w.at.Offset
		}
		w.lost, w.hint, v.table = true, nil, nil
		next, err := v.resume(ctx, w.at.Position)
		if err != nil || next == nil {
			return err
		}
		w.at = *next
	}
}

// toTail reads up to the first absent or damaged slot. It says what is wrong with that;
// nothing is if it is the tail. Whatever seems wrong is read once more first: perhaps only
// the transfer was, or the object has come since.
func (w *walk) toTail(ctx context.Context) (wrong string, err error) {
	for {
		err := w.advance(ctx)
		twice := w.again == w.at.Position
		switch {
		case errors.Is(err, chain.ErrDamaged):
			if twice {
				return about(layout.DataKey(w.at.Position), err), nil
			}
			w.why = ""
		case err != nil:
			return "", err
		case w.lost:
			return "", nil
		default:
			if err := w.Tail(ctx, w.at.Position); err != nil {
				return "", err
			}
			if twice && w.why != "" {
				return "it is missing: " + w.why, nil
			}
			if w.why, err = w.taken(ctx); err != nil || w.why == "" {
				return "", err
			}
		}
		w.again = w.at.Position
	}
}

// advance reads up to the first absent or damaged slot.
func (w *walk) advance(ctx context.Context) error {
	for step, err := range w.Walk(ctx, w.at) {
		if err != nil {
			return err
		}
		if step.Frame.Kind == frame.Seal {
			w.sealed[step.From.Position.Epoch] = step.From.Position.Seq
		}
		w.edit(step.Frame)
		w.checkHint(step.From, step.To)
		w.at = step.To
		w.next = max(w.next, w.at.Offset)
		w.report.Slots++
		w.report.Bytes += step.Size
		w.done += step.Size
		w.opts.Hooks.Progress(Progress{Stage: "chain", Done: w.done})
	}
	return nil
}

// checkHint compares the hint of the manifest with a step of the chain, once that
// reaches it.
func (w *walk) checkHint(from, to frame.Point) {
	h := w.hint
	if h == nil {
		return
	}
	const remedy = "if the chain is whole, the next checkpoint of a writer replaces the hint; otherwise " + restore
	switch {
	case from.Position == h.Position:
		w.hint = nil
		if !from.Equal(*h) {
			w.problem(layout.ManifestKey(w.m.Version), remedy, "its hint at %v has offset %d and checksum %08x, on the chain there are %d and %08x",
				h.Position, h.Offset, h.Prev, from.Offset, from.Prev)
		}
	case h.Position.Before(to.Position):
		w.hint = nil
		w.problem(layout.DataKey(from.Position), keep+"; "+restore, "the chain leaves epoch %d here, but a manifest says that it was acknowledged up to %v", from.Position.Epoch, h.Position)
	}
}

// taken returns why an absent slot must hold an object, or "" if the log may end there.
// Objects after a gap are no proof: a leader has many requests in flight, and one that is
// killed leaves gaps.
func (w *walk) taken(ctx context.Context) (why string, err error) {
	if h := w.m.Hint; h != nil && w.at.Position.Before(h.Position) {
		return "manifest " + layout.FormatNumber(w.m.Version) + " says that the log was acknowledged up to " + h.Position.String(), nil
	}
	witness, err := w.witness(ctx, w.at.Position)
	if witness != "" {
		why = witness + " could not be there otherwise"
	}
	return why, err
}
