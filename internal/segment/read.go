package segment

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/fencepost/fencepost/internal/frame"
)

const (
	// DefaultBudget is how many bytes are fetched ahead.
	DefaultBudget = 16 << 20
	// readSize is about how much one request asks for. A segment that is not larger
	// takes one request, index and all.
	readSize = 4 << 20
	// maxWindow is how many requests are under way at once, however small.
	maxWindow = 64
)

// Piece is a block of a segment.
type Piece struct {
	Ref   Ref
	Frame *frame.Frame
	// Stored is set instead if [Source.ReadStored] has not unpacked it.
	Stored *frame.Stored
}

// Records is how many it holds.
func (p Piece) Records() uint32 {
	if p.Stored != nil {
		return p.Stored.Records
	}
	return p.Frame.Records
}

// Frames is [Source.Read] of one segment.
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

// Read yields the blocks of segments, in order, from the one that holds the record
// at offset from; nothing of segments before it. An error comes when all that is
// before it was yielded, with the segment that it is about.
//
// It begins with the one block that is wanted and then fetches and decompresses
// more and more ahead, across segments, up to Budget. The frames are the caller's;
// each keeps alive what was fetched with it, some 4 MiB. Requests that are under
// way when the loop ends are cancelled and waited for.
func (s *Source) Read(ctx context.Context, refs iter.Seq2[Ref, error], from uint64) iter.Seq2[Piece, error] {
	return s.read(ctx, refs, from, false)
}

// ReadStored is Read from the first record on for who puts blocks elsewhere: those
// that [Writer.AddStored] takes are checked by their checksums and not unpacked.
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
				// Its place is taken before it is handed out, which may take as long as a
				// request: otherwise one request less would be under way, and with a small
				// budget that is half of them.
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

// reading is the state of one Read. Only its goroutine touches it, but for
// unpacked.
type reading struct {
	*Source
	from   uint64
	stored bool
	refs   func() (Ref, error, bool)
	opened []*opened // segments that are not all in the queue, in order
	queue  []*run
	window int   // of runs
	budget int64 // what is left of it for bytes as stored
	begun  bool
	last   bool // no more segments are to be opened
	failed bool // what is behind the last run is of no interest
	// unpacked is what is left of the budget for decompressed bytes.
	unpacked atomic.Int64
}

// opened is a segment that was begun with.
type opened struct {
	ref Ref
	// small segments are fetched at once, index and all.
	small  bool
	done   chan struct{} // closed when blocks or err are here
	blocks []Block
	err    error
	next   int // block to ask for; -1: the one that is wanted
}

// run is some blocks that follow each other and are fetched at once.
type run struct {
	ref    Ref
	blocks []Block // of the segment
	i, end int     // those to decode, which body begins with
	size   int64
	body   []byte
	frames []Piece // decoded ahead
	err    error
	done   chan struct{}
}

// fill asks for as much as window and budget allow, and for at least one run if
// there is any and none is in hand.
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
				return // there is something to hand out meanwhile
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

// current returns the segment to ask for next, and has the index of the one behind
// it fetched as well; nil if there is none.
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

// take chooses the next blocks of a segment: of the very first only the one that
// is wanted.
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

// fetch fetches a run, and decodes of it what the budget allows.
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
			return // it is told when it is its turn
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

// unpackedLen is what a frame takes beside the bytes that it was decoded from.
func (r *reading) unpackedLen(h *frame.Header) int64 {
	if h.Codec == frame.Plain || r.stored && Whole(h) {
		return 0
	}
	return int64(h.PayloadLen())
}

// next returns the next block, an empty piece behind the last.
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

// decode decodes the first block of body and takes it off.
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

// wait waits for all that is under way.
func (r *reading) wait() {
	for _, run := range r.queue {
		<-run.done
	}
	for _, seg := range r.opened {
		<-seg.done
	}
}
