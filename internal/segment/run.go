package segment

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/internal/frame"
)

// run is a row of blocks that one request fetches.
type run struct {
	ref    Ref
	blocks []Block // of the segment
	i, end int     // blocks that are still to be decoded; body begins with block i
	size   int64
	body   []byte
	frames []Piece // decoded ahead
	err    error
	done   chan struct{}
}

// fetch fetches a run, and decodes ahead as much of it as the budget allows.
func (run *run) fetch(ctx context.Context, r *reading, small bool) {
	defer close(run.done)
	if small {
		if run.body, run.err = r.fetch(ctx, run.ref, 0, run.ref.Size); run.err != nil {
			return
		}
		if run.blocks, run.err = r.index(run.body[run.ref.Size-run.ref.Index:], run.ref); run.err != nil {
			return
		}
		run.i, run.end = Find(run.blocks, max(r.from, run.ref.First)), len(run.blocks)
		run.body = run.body[run.blocks[run.i].At:]
	} else if run.body, run.err = r.fetch(ctx, run.ref, run.blocks[run.i].At, run.size); run.err != nil {
		return
	}
	for run.i < run.end {
		h, err := frame.DecodeHeader(run.body)
		if err != nil {
			return // next returns the error, when it is the block's turn
		}
		need := r.unpackedLen(&h)
		if r.unpacked.Add(-need) < 0 {
			r.unpacked.Add(need)
			return
		}
		f, err := run.decode(r)
		if err != nil {
			r.unpacked.Add(need)
			return
		}
		run.frames = append(run.frames, f)
	}
}

// unpackedLen is how many bytes a frame has in memory beside those it was decoded from.
func (r *reading) unpackedLen(h *frame.Header) int64 {
	if h.Codec == frame.Plain || r.stored && Whole(h) {
		return 0
	}
	return int64(h.PayloadLen())
}

// next returns the next block, and an empty piece after the last one.
func (run *run) next(r *reading) (Piece, error) {
	switch {
	case len(run.frames) > 0:
		p := run.frames[0]
		run.frames[0] = Piece{}
		run.frames = run.frames[1:]
		if p.Frame != nil {
			r.unpacked.Add(r.unpackedLen(&p.Frame.Header))
		}
		return p, nil
	case run.err != nil || run.i == run.end:
		return Piece{}, run.err
	}
	return run.decode(r)
}

// decode decodes the first block of body, and cuts it off.
func (run *run) decode(r *reading) (Piece, error) {
	n, p := run.blocks[run.i].Len, Piece{Ref: run.ref}
	var err error
	if r.stored {
		p.Stored, err = decodeWhole(run.body[:n:n], run.blocks, run.i, r.Log, run.ref.End, r.Limits)
	}
	if err == nil && p.Stored == nil {
		p.Frame, err = DecodeBlock(run.body[:n:n], run.blocks, run.i, r.Log, run.ref.End, r.Limits)
	}
	if err != nil {
		return p, fmt.Errorf("%s: block %d: %w", run.ref.Key, run.i, err)
	}
	if run.body = run.body[n:]; run.i+1 == run.end {
		run.body = nil
	}
	run.i++
	return p, nil
}
