package verify

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// segments reads all segments from v.next to the floor.
func (v *verifier) segments(ctx context.Context) error {
	total := v.done
	for s, err := range v.log.Segments(ctx, v.m, v.next) {
		if err != nil {
			return v.unlisted(ctx, err)
		}
		total += s.Size
	}
	for {
		// Retention may have deleted records meanwhile.
		if v.next = max(v.next, v.m.First()); v.next >= v.m.Floor.Offset {
			return nil
		}
		seg, err := v.log.SegmentOf(ctx, v.m, v.next)
		if err != nil {
			return v.unlisted(ctx, err)
		}
		if err := v.segment(ctx, seg, total); err != nil {
			return err
		}
		v.next = seg.End
	}
}

// unlisted is called when a list of segments cannot be read. If a newer manifest names
// others, the work goes on with that. Otherwise the list is damaged, which lists reports,
// and the chain is still to be checked.
func (v *verifier) unlisted(ctx context.Context, err error) error {
	if !unreadable(err) {
		return err
	}
	was := v.m.Version
	if err := v.refresh(ctx); err != nil {
		return err
	}
	if v.m.Version != was {
		return errMoved
	}
	v.next = v.m.Floor.Offset
	return nil
}

// segment checks a segment that the newest manifest names.
func (v *verifier) segment(ctx context.Context, seg state.Segment, total int64) error {
	before := v.done
	err := v.whole(ctx, seg, "segments", total)
	if err != nil && unreadable(err) {
		// The manifest is read after the segment. If it does not name the segment any more, a
		// compactor has merged and pruned it.
		if err := v.refresh(ctx); err != nil {
			return err
		}
		now, err := v.log.SegmentOf(ctx, v.m, seg.First)
		if err != nil && !errors.Is(err, state.ErrPruned) {
			return err
		}
		if now.Key != seg.Key {
			v.done = before
			return errMoved
		}
	}
	v.read[seg.Key] = true
	switch {
	case err == nil:
	case errors.Is(err, store.ErrNotFound):
		v.problem(seg.Key, restore, "it is missing; manifest %d says that it holds the records %d to %d, which cannot be read", v.m.Version, seg.First, seg.End-1)
	case unreadable(err):
		v.problem(seg.Key, restore, "segment of the records %d to %d, named by manifest %d: %s", seg.First, seg.End-1, v.m.Version, about(seg.Key, err))
	default:
		return err
	}
	return nil
}

// whole reads a segment, and once more if it is damaged: perhaps only the transfer was.
func (v *verifier) whole(ctx context.Context, seg state.Segment, stage string, total int64) error {
	before := v.done
	if !v.opts.due(seg.Key) {
		return v.present(ctx, seg)
	}
	ref := segment.Ref{Key: seg.Key, First: seg.First, End: seg.End, Size: seg.Size, Index: seg.Index}
	read := func() error {
		v.done = before + seg.Index
		prev := uint32(0)
		for f, err := range v.segs.Frames(ctx, ref, seg.First) {
			if err != nil {
				return err
			}
			if f.Prev != prev {
				return fmt.Errorf("%w: the block with record %d follows one with checksum %08x, the one before it has %08x", fence.ErrCorrupt, f.Offset, f.Prev, prev)
			}
			prev = f.Checksum()
			v.done += f.BodyLen()
			v.opts.Hooks.Progress(Progress{Stage: stage, Done: v.done, Total: total})
		}
		return nil
	}
	err := read()
	if err != nil && unreadable(err) {
		err = read()
	}
	if v.done = before + seg.Size; err == nil {
		v.report.Segments++
		v.report.Bytes += seg.Size
	}
	return err
}

// present checks that a segment is there with its size.
func (v *verifier) present(ctx context.Context, seg state.Segment) error {
	if v.sizes == nil {
		sizes := map[string]int64{}
		for info, err := range store.ListAll(ctx, v.st, layout.SegmentPrefix, nil, v.opts.Settle) {
			if err != nil {
				return err
			}
			sizes[info.Key] = info.Size
		}
		v.sizes = sizes
	}
	if v.sizes[seg.Key] == seg.Size {
		return nil
	} // it may be younger than the listing
	_, info, err := store.Read(ctx, v.st, seg.Key, &store.ReadOptions{Length: 1, Settle: v.opts.Settle})
	if err == nil && info.Size != seg.Size {
		err = fmt.Errorf("%w: it has %d bytes, the manifest says %d", fence.ErrCorrupt, info.Size, seg.Size)
	}
	return err
}
