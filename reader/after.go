package reader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// After returns the offset of the first record whose Record.Time is after t, or the end
// of the log if there is none. It is as exact as the clocks of the writers were, and for
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
