package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// maxWindow is how far after an empty slot a writer may have sent others.
const maxWindow = 1 << 16

// witness returns the key of an object that proves that slot p was taken: data of a later
// epoch, whose first seal is on p or after it, or data too far ahead in the same epoch. A
// seal proves nothing, since openers put seals as far ahead as they like.
func (v *verifier) witness(ctx context.Context, p fence.Position) (string, error) {
	var seals []fence.Position // small objects: most of them are seals
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
		case err != nil && !unreadable(err):
			return "", err
		}
	}
	return "", nil
}

// header reads the header of a slot and checks that it belongs there.
func (v *verifier) header(ctx context.Context, p fence.Position) (frame.Header, error) {
	b, info, err := store.Read(ctx, v.st, layout.DataKey(p), &store.ReadOptions{Length: frame.HeaderSize, Settle: v.opts.Settle})
	if err != nil {
		return frame.Header{}, err
	}
	h, err := frame.DecodeHeader(b)
	switch {
	case err != nil:
	case h.Log != v.report.Log || h.Position != p:
		err = fmt.Errorf("%w: it is %s of log %s", fence.ErrCorrupt, layout.DataKey(h.Position), h.Log)
	case info.Size != frame.HeaderSize+h.BodyLen():
		err = fmt.Errorf("%w: it has %d bytes, its header says %d", fence.ErrCorrupt, info.Size, frame.HeaderSize+h.BodyLen())
	}
	return h, err
}

// resume finds the next slot after damage that can be read, so that all of the damage is
// reported. It returns nil if there is none.
func (v *verifier) resume(ctx context.Context, p fence.Position) (*frame.Point, error) {
	after := p
	for {
		slots, err := v.slotsAfter(ctx, after)
		if err != nil || len(slots) == 0 {
			return nil, err
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
				// A seal does not say its offset, so go on with the data after it. What comes after
				// it in its own epoch is void.
				after = fence.Position{Epoch: h.Next}
			case !unreadable(err):
				return nil, err
			case !errors.Is(err, store.ErrNotFound):
				v.problem(layout.DataKey(q), restore, "after other damage: %s", about(layout.DataKey(q), err))
			}
		}
	}
}

// slotsAfter returns the next slots that hold objects, in order: listings have none.
func (v *verifier) slotsAfter(ctx context.Context, p fence.Position) ([]fence.Position, error) {
	const page = 4096
	var slots []fence.Position
	for info, err := range store.ListAll(ctx, v.st, layout.DataPrefix, nil, v.opts.Settle) {
		if err != nil {
			return nil, err
		}
		if q, ok := layout.ParseDataKey(info.Key); ok && p.Before(q) {
			if slots = append(slots, q); len(slots) >= 2*page {
				slots = lowest(slots, page)
			}
		}
	}
	return lowest(slots, page), nil
}

// bySlot orders positions as [slices.SortFunc] wants them.
func bySlot(a, b fence.Position) int {
	return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq))
}

func lowest(slots []fence.Position, n int) []fence.Position {
	slices.SortFunc(slots, bySlot)
	slots = slices.Compact(slots)
	return slots[:min(n, len(slots))]
}
