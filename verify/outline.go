package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// outline moves to the hint by the names of the slots alone, if that is wanted. It says what is wrong with the slot where
// it cannot go on. The listing is younger than the manifest, and no slot is deleted before the floor has passed it.
func (w *walk) outline(ctx context.Context) (wrong string, err error) {
	h := w.hint
	if !w.opts.Outline || h == nil || !w.at.Position.Before(h.Position) {
		return "", nil
	}
	slots := map[fence.Position]int64{}
	for info, err := range store.ListAll(ctx, w.st, layout.DataPrefix, nil, w.opts.Settle) {
		if err != nil {
			return "", err
		}
		if p, ok := layout.ParseDataKey(info.Key); ok && !p.Before(w.at.Position) && p.Before(h.Position) {
			slots[p] = info.Size
		}
	}
	first := fence.Position{} // the first seal
	for p := w.at.Position; p != h.Position; {
		size, there := slots[p]
		head := frame.Header{}
		switch {
		case !there:
			_, err = w.header(ctx, p)
		case size < frame.HeaderSize:
			err = fmt.Errorf("%w: it has %d bytes", fence.ErrCorrupt, size)
		case size == frame.HeaderSize:
			head, err = w.header(ctx, p)
		}
		if err != nil && !unreadable(err) {
			return "", err
		}
		next := fence.Position{Epoch: p.Epoch, Seq: p.Seq + 1}
		if head.Kind == frame.Seal {
			next = fence.Position{Epoch: head.Next, Seq: 1}
		}
		if err != nil || h.Position.Before(next) {
			w.at.Position = p
			if moved := w.Tail(ctx, cmp.Or(first, p)); moved != nil {
				return "", moved
			}
		}
		switch {
		case errors.Is(err, store.ErrNotFound):
			return fmt.Sprintf("it is missing: manifest %s says that the log was acknowledged up to %v", layout.FormatNumber(w.m.Version), h.Position), nil
		case err != nil:
			return about(layout.DataKey(p), err), nil
		case h.Position.Before(next):
			return fmt.Sprintf("the chain leaves epoch %d here, but a manifest says that it was acknowledged up to %v", p.Epoch, h.Position), nil
		}
		if head.Kind == frame.Seal {
			w.sealed[p.Epoch], first = p.Seq, cmp.Or(first, p)
		}
		p = next
	}
	w.at = *h
	return "", nil
}
