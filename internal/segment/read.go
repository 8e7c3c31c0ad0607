package segment

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/fencepost/fencepost/internal/frame"
)

const (
	// DefaultBudget is how many bytes are fetched ahead.
	DefaultBudget = 16 << 20
	// readSize is about how many bytes one request asks for. A segment that is not larger
	// takes one request, its index included.
	readSize = 4 << 20
	// maxWindow bounds how many requests are in flight at once.
	maxWindow = 64
)

// Piece is a block of a segment.
type Piece struct {
	Ref   Ref
	Frame *frame.Frame
	// Stored is set instead if [Source.ReadStored] has not unpacked it.
	Stored *frame.Stored
}

// Records is the number of records in the block.
func (p Piece) Records() uint32 {
	if p.Stored != nil {
		return p.Stored.Records
	}
	return p.Frame.Records
}

// Frames is [Source.Read] for one segment.
func (s *Source) Frames(ctx context.Context, ref Ref, from uint64) iter.Seq2[*frame.Frame, error] {
	return func(yield func(*frame.Frame, error) bool) {
		one := func(yield func(Ref, error) bool) { yield(ref, nil) }
		for p, err := range s.Read(ctx, one, from) {
			if !yield(p.Frame, err) {
				return
			}
		}
	}
}

// Read yields the blocks of segments, in order, from the block with the record at offset
// from on. An error comes after everything before it, with the segment it is about.
//
// It begins with that one block, and then fetches and decompresses more and more ahead,
// across segments, up to Budget. The frames are the caller's. Each keeps alive what was
// fetched with it, some 4 MiB. Requests in flight when the loop ends are cancelled and
// waited for.
func (s *Source) Read(ctx context.Context, refs iter.Seq2[Ref, error], from uint64) iter.Seq2[Piece, error] {
	return s.read(ctx, refs, from, false)
}

// ReadStored is Read from the first record on, for a caller that copies blocks into
// another segment. Blocks that [Writer.AddStored] accepts are checked by their checksums
// and not unpacked.
func (s *Source) ReadStored(ctx context.Context, refs iter.Seq2[Ref, error]) iter.Seq2[Piece, error] {
	return s.read(ctx, refs, 0, true)
}

func (s *Source) read(ctx context.Context, refs iter.Seq2[Ref, error], from uint64, stored bool) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		next, stop := iter.Pull2(refs)
		defer stop()
		ctx, cancel := context.WithCancel(ctx)
		r := &reading{Source: s, from: from, stored: stored, refs: next, window: 1, budget: s.Budget}
		if stored {
			r.window, r.begun = maxWindow, true // all of it is wanted
		}
		if r.budget <= 0 {
			r.budget = DefaultBudget
		}
		r.unpacked.Store(r.budget)
		defer r.wait()
		defer cancel()
		for {
			r.fill(ctx, false)
			if len(r.queue) == 0 {
				return
			}
			run := r.queue[0]
			<-run.done
			r.queue[0] = nil // or the array behind the queue would keep its bytes
			r.queue = r.queue[1:]
			r.budget += run.size
			if r.window > 1 {
				// Fill its place before its blocks are yielded, since the caller may take as long as a
				// request does. Otherwise one request fewer is in flight, with a small budget half of
				// them.
				r.fill(ctx, true)
			}
			for {
				p, err := run.next(r)
				if err != nil {
					yield(Piece{Ref: run.ref}, err)
					return
				}
				if p.Frame == nil && p.Stored == nil {
					break
				}
				if !yield(p, nil) {
					return
				}
			}
			r.window = min(2*r.window, maxWindow)
		}
	}
}

// reading is the state of one Read. Only its goroutine touches it, except for unpacked.
type reading struct {
	*Source
	from   uint64
	stored bool
	refs   func() (Ref, error, bool)
	opened []*opened // segments with blocks that are not in the queue yet, in order
	queue  []*run
	window int   // how many runs the queue may hold
	budget int64 // what is left of Budget for bytes as stored
	begun  bool  // the block that is wanted first has been asked for
	last   bool  // no more segments are to be opened
	failed bool  // the last run has failed: nothing after it is wanted
	// unpacked is what is left of Budget for decompressed bytes.
	unpacked atomic.Int64
}

// opened is a segment whose blocks are being read.
type opened struct {
	ref Ref
	// small segments are fetched at once, index and all.
	small  bool
	done   chan struct{} // closed when blocks or err are here
	blocks []Block
	err    error
	next   int // block to ask for; -1: the one with the record that is wanted
}

// fill asks for as many runs as window and budget allow. If the queue is empty it asks for
// one in any case, unless the caller has one in hand.
func (r *reading) fill(ctx context.Context, inHand bool) {
	for len(r.queue) < r.window && !r.failed {
		seg := r.current(ctx)
		if seg == nil {
			return
		}
		select {
		case <-seg.done:
		default:
			if inHand || len(r.queue) > 0 {
				return // there is something to yield meanwhile
			}
			<-seg.done
		}
		run := r.take(seg)
		if (inHand || len(r.queue) > 0) && run.size > r.budget {
			return
		}
		r.budget -= run.size
		r.queue = append(r.queue, run)
		r.begun = true
		seg.next = run.end
		if seg.small || seg.err != nil || run.end == len(seg.blocks) {
			r.opened = slices.Delete(r.opened, 0, 1)
		}
		if r.failed = run.err != nil; r.failed {
			close(run.done)
			return
		}
		go run.fetch(ctx, r, seg.small)
	}
}

// current returns the segment to ask for next, nil if there is none. It also has the
// index of the segment after it fetched.
func (r *reading) current(ctx context.Context) *opened {
	for len(r.opened) < min(r.window, 2) && !r.last {
		ref, err, ok := r.refs()
		if ok && err == nil {
			if ref.End <= r.from {
				continue
			}
			err = ref.check()
		}
		r.last = !ok || err != nil
		if !ok {
			break
		}
		seg := &opened{ref: ref, small: ref.Size <= readSize, done: make(chan struct{}), err: err, next: -1}
		r.opened = append(r.opened, seg)
		if seg.small || err != nil {
			close(seg.done)
			continue
		}
		go func() {
			defer close(seg.done)
			seg.blocks, seg.err = r.Index(ctx, ref)
		}()
	}
	if len(r.opened) == 0 {
		return nil
	}
	return r.opened[0]
}

// take chooses the next blocks of a segment. The first run is only the block that is
// wanted.
func (r *reading) take(seg *opened) *run {
	run := &run{ref: seg.ref, blocks: seg.blocks, err: seg.err, done: make(chan struct{})}
	switch {
	case seg.err != nil:
	case seg.small:
		run.size = seg.ref.Size
	default:
		if run.i = seg.next; run.i < 0 {
			run.i = Find(seg.blocks, max(r.from, seg.ref.First))
		}
		for run.end = run.i; run.end < len(seg.blocks) && (run.size == 0 || r.begun && run.size+seg.blocks[run.end].Len <= readSize); run.end++ {
			run.size += seg.blocks[run.end].Len
		}
	}
	return run
}

// wait waits for all requests in flight.
func (r *reading) wait() {
	for _, run := range r.queue {
		<-run.done
	}
	for _, seg := range r.opened {
		<-seg.done
	}
}
