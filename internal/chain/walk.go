package chain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// Walk yields the objects of the chain from a point on. It ends without an error at the
// first empty slot. It yields seals and follows them, and any of them may be junk: the
// caller has to find that out. Use a [Follower] unless there is another proof.
//
// A walk begins with First requests and doubles their number with each object found, but see
// Few. A walk that begins at the tail costs one request. Requests that are in flight when the
// loop ends are cancelled, and the walk waits for them.
func (s *Source) Walk(ctx context.Context, from frame.Point) iter.Seq2[Step, error] {
	return s.walk(ctx, from, new(fence.Position))
}

// walk also sets beyond at the first empty slot, to the last slot that it has seen to hold
// something other than a seal.
func (s *Source) walk(ctx context.Context, from frame.Point, beyond *fence.Position) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		w := &walk{
			Source: s, window: min(max(s.First, 1), s.ahead()), few: s.Few, room: newRoom(s.budget(), s.Over, s.Settle), length: 1,
			asked: make(chan *fetch, s.ahead()), arrived: make(chan *fetch, s.ahead()),
		}
		defer w.end()
		defer w.drop()
		defer cancel()
		for p := from; ; {
			f := w.next(ctx, p.Position)
			step, err := s.check(p, f)
			if errors.Is(err, store.ErrNotFound) {
				*beyond = w.beyond()
				return
			}
			if !yield(step, err) || err != nil {
				return
			}
			if step.Frame.Kind == frame.Seal {
				w.void += w.drop() // objects after the seal are void
				w.turn(p.Position)
			}
			p = step.To
		}
	}
}

// walk is the state of one walk. Only the goroutine that walks touches it; workers get
// and return fetches through channels.
type walk struct {
	*Source
	queue   []*fetch    // of consecutive slots
	window  int         // how long the queue may become
	few     bool        // no object was found yet, and one is expected at most
	active  int         // fetches in the queue that have not arrived
	asked   chan *fetch // to the workers
	arrived chan *fetch // from them
	workers int
	running sync.WaitGroup
	held    int64     // bytes of heads in the queue
	ends    bool      // a fetch in the queue has failed or is a seal: the walk does not go past it
	lengths [8]uint64 // of the last epochs
	epochs  int
	length  int    // how many slots the next epoch probably has, at least
	last    uint64 // no seal is expected before this slot; 0 if the walk has passed it
	room    *room
	found   int
	void    int   // for how many slots after seals no object came
	usual   int64 // size that the last objects rarely exceeded
}

// next returns the finished fetch of slot p. That is the slot after the previous one,
// unless the queue was dropped.
func (w *walk) next(ctx context.Context, p fence.Position) *fetch {
	for {
		w.ask(ctx, p)
		if w.queue[0].here {
			break
		}
		if f := w.queue[0]; f.ask > Head && !f.urgent {
			w.room.urge(f)
		}
		w.note(<-w.arrived)
	}
	f := w.queue[0]
	w.startRests(ctx)
	f.wait()
	w.pop()
	if f.err == nil {
		w.found++
		if w.few {
			w.few = false
		} else if w.last == 0 {
			w.window = min(2*w.window, depth*w.ahead())
		} else if p.Seq >= w.last {
			w.window, w.last = 1, 0
		}
		// A large object after small ones costs a second request, so the next ones are asked for
		// whole at once. Small ones after it only reserve too much, until they are here.
		// Seals say nothing about the size of what follows.
		if f.Info.Size != frame.HeaderSize {
			w.usual = max(w.usual+(f.Info.Size-w.usual)/8, f.Info.Size)
		}
	}
	return f
}

// turn begins an epoch, after a seal in slot p. Many short epochs in a row, after a fault that
// returns each minute, are about as long as one another. The walk expects no seal before the
// length of the shortest of the last epochs. It asks for so many slots in a row, and for none
// after them until those are known to hold no seal. One long epoch says little about the next
// one, so the number only doubles.
func (w *walk) turn(p fence.Position) {
	if p.Epoch > 0 { // epoch 0 is a seal in every log
		w.lengths[w.epochs%len(w.lengths)] = p.Seq
		w.epochs++
		shortest := slices.Min(w.lengths[:min(w.epochs, len(w.lengths))])
		w.length = int(min(shortest, uint64(2*w.length), uint64(depth*w.ahead())))
	}
	w.window, w.last = w.length, uint64(w.length)
}

// ask sends requests for the slots after the queue, which begins at p.
func (w *walk) ask(ctx context.Context, p fence.Position) {
	w.noteArrived() // one of them may be the tail
	// The next objects are probably about as large as the last ones. If those were large,
	// each is asked for in one request.
	ask := max(Head, w.usual+w.usual/16)
	// While the walk waits, it may ask for more than there is room for. Most of it waits for the
	// same slot as the walk, and a request takes its room only when it is answered.
	over := int64(0)
	if len(w.queue) > 0 && !w.queue[0].here && w.room.patient(w.found) {
		over = w.Over
	}
	for len(w.queue) == 0 || w.mayAsk(p) {
		f := newFetch(ctx, fence.Position{Epoch: p.Epoch, Seq: p.Seq + uint64(len(w.queue))}, ask)
		if !w.room.hope(f, ask-Head, over, len(w.queue) == 0) {
			f.cancel()
			return
		}
		w.active++
		w.queue = append(w.queue, f)
		// Workers stay until the walk ends. A goroutine per request would grow its stack each
		// time, which is a fifth of the processor time of a small request.
		if w.workers < w.active {
			w.workers++
			w.running.Go(w.work)
		}
		w.asked <- f
	}
}

// mayAsk reports whether one slot more may be asked for, if its object is small.
func (w *walk) mayAsk(p fence.Position) bool {
	n := len(w.queue)
	return n < w.window && (w.last == 0 || p.Seq+uint64(n) <= w.last) && w.active < w.atOnce() && !w.ends &&
		(w.held < w.heads() || w.room.spare())
}

// thrift is how many objects a thrifty walk finds for each request that it wastes.
const thrift = 12

// atOnce is how many requests may be in flight. If the slot that the walk waits for holds a seal, all
// others may be wasted. So a thrifty walk has no more in flight than it may still waste. Where a seal
// is possible, it has a quarter of that in flight, which leaves the rest for slots where none is
// expected. A void object that came is not counted as wasted: while a seal is late, a walk may read
// hundreds of them, and it would then ask for one slot after the other for thousands of objects.
// Until the end of its first epoch a walk is as fast as it can be: it may waste so much.
func (w *walk) atOnce() int {
	if !w.Thrifty || w.epochs == 0 {
		return w.ahead()
	}
	left := 2*w.ahead() + w.found/thrift - w.void
	if w.last == 0 {
		left = (left + 3) / 4
	}
	return min(w.ahead(), left)
}

// heads is how many bytes of heads wait for their turn, besides those that take room.
func (w *walk) heads() int64 { return int64(w.ahead()) * Head }

// hold counts n bytes more of heads that wait for their turn.
func (w *walk) hold(n int64) {
	before := max(w.held-w.heads(), 0)
	w.held += n
	if after := max(w.held-w.heads(), 0); after != before {
		w.room.give(before - after)
	}
}

func (w *walk) work() {
	for f := range w.asked {
		f.fetchHead(w.Source, w.room)
		w.arrived <- f
	}
}

// end ends the workers, when nothing is in flight any more.
func (w *walk) end() {
	close(w.asked)
	w.running.Wait()
}

// note records that the head of a fetch has arrived.
func (w *walk) note(f *fetch) {
	w.active--
	f.here, f.head = true, min(int64(len(f.Body)), Head)
	w.hold(f.head)
	if f.ask > Head {
		w.room.met(f)
	}
	w.ends = w.ends || f.err != nil || isSeal(f)
}

// isSeal reports whether a fetch that has arrived is a seal. Objects after it are void.
func isSeal(f *fetch) bool {
	h, err := frame.DecodeHeader(f.Body)
	return err == nil && h.Kind == frame.Seal
}

func (w *walk) noteArrived() {
	for len(w.arrived) > 0 {
		w.note(<-w.arrived)
	}
}

// pop removes the first fetch from the queue.
func (w *walk) pop() {
	f := w.queue[0]
	w.hold(-f.head)
	if f.reserved > 0 {
		w.room.give(f.reserved)
	}
	w.queue[0] = nil // or the array under the queue would keep its body
	w.queue = w.queue[1:]
}

// beyond returns the last slot in the queue that was found to hold something other than a
// seal, or none.
func (w *walk) beyond() fence.Position {
	w.noteArrived()
	for _, f := range slices.Backward(w.queue) {
		if !f.here || f.err != nil {
			continue
		}
		if h, err := frame.DecodeHeader(f.Body); err != nil || h.Kind != frame.Seal {
			return f.pos
		}
	}
	return fence.Position{}
}

// drop cancels what is in flight and waits for it. It returns for how many slots no object came.
func (w *walk) drop() (void int) {
	for _, f := range w.queue {
		f.cancel()
	}
	for w.active > 0 {
		w.note(<-w.arrived)
	}
	for len(w.queue) > 0 {
		w.queue[0].wait()
		if f := w.queue[0]; f.err != nil && f.rest == nil {
			void++
		}
		w.pop()
	}
	w.queue, w.ends = nil, false
	return void
}

// startRests asks for the rests of large objects whose heads have arrived, in order, as far
// as there is room. The first object's rest is asked for in any case.
func (w *walk) startRests(ctx context.Context) {
	for i, f := range w.queue {
		if !f.here {
			return
		}
		if f.rest != nil {
			continue // its goroutine owns body and err until it is done
		}
		if f.err != nil {
			return
		}
		if !f.partial() {
			continue
		}
		if !w.room.try(f, f.Info.Size-f.reserved, i == 0) {
			return
		}
		f.rest = make(chan struct{})
		ctx, cancel := context.WithCancel(ctx)
		f.cancel = cancel
		go func() {
			defer close(f.rest)
			defer cancel()
			f.fetchRest(ctx, w.Source)
		}()
	}
}

// fetch is the request for one slot, and then its answer.
type fetch struct {
	pos    fence.Position
	ask    int64              // how many bytes of it
	ctx    context.Context    //nolint:containedctx // of the request, on its way to a worker
	cancel context.CancelFunc // of the request that is in flight
	here   bool               // its head has arrived
	head   int64              // bytes of that
	rest   chan struct{}      // closed when the rest is here; nil if it was not asked for
	whole  int64              // size of the object, if only its head was let in
	Object
	err error

	// These belong to the room.
	hope, need, reserved int64
	urgent               bool          // the walk waits for it
	granted              chan struct{} // closed when it gets what it needs
}

func newFetch(ctx context.Context, pos fence.Position, ask int64) *fetch {
	ctx, cancel := context.WithCancel(ctx)
	return &fetch{pos: pos, ask: ask, ctx: ctx, cancel: cancel}
}

// fetchHead fetches as much as was asked for, but of a large object only the head if there
// is no room. Without a room it asks for the head.
func (f *fetch) fetchHead(s *Source, r *room) {
	defer f.cancel()
	st := s.Store
	if f.ask > Head {
		st = door{st, r, f}
	}
	f.Object, f.err = s.readHead(f.ctx, st, f.pos, f.ask)
	f.Info.Size = max(f.Info.Size, f.whole)
}

// wait waits for the rest, if it was asked for.
func (f *fetch) wait() {
	if f.rest != nil {
		<-f.rest
	}
}

func (f *fetch) partial() bool { return f.Info.Size > int64(len(f.Body)) }

func (f *fetch) fetchRest(ctx context.Context, s *Source) {
	limit := frame.MaxFrame(s.Limits)
	if f.Info.Size > limit {
		f.err = fmt.Errorf("%w: %s has %d bytes; the log allows %d", fence.ErrCorrupt, layout.DataKey(f.pos), f.Info.Size, limit)
		return
	}
	off := int64(len(f.Body))
	// The rest is appended to the head, in a buffer that grows as bytes arrive. Two buffers
	// would hold a large object twice.
	whole, info, err := store.Read(ctx, s.Store, layout.DataKey(f.pos), &store.ReadOptions{Offset: off, Length: f.Info.Size - off, Append: f.Body, Settle: s.Settle})
	switch {
	case err != nil && !errors.Is(err, store.ErrRange):
		f.err = err
	case err != nil || info.Version != f.Info.Version:
		// guard:rest-match. If the two GETs of a large log object have different object versions, the
		// slot counts as absent.
		f.err = &store.Error{Op: "get", Key: layout.DataKey(f.pos), Kind: store.ErrNotFound, Hint: "it changed while it was read"}
	default:
		f.Body = whole
	}
}
