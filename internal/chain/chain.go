// Package chain walks the log's chain in a store: many objects are fetched at
// once, all are judged in order.
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

const (
	// Head is how much of an object the first request asks for, at least, in bytes. Most
	// objects are smaller and cost one request; of the others nobody holds more than this
	// until it is their turn, or until there is room for others like the last one.
	Head = 256 << 10
	// DefaultAhead is how many objects are asked for at once at most.
	DefaultAhead = 64
	// depth is how many slots may be asked for or wait for their turn, in Ahead. They are
	// judged in order: with no more slots than requests, all requests but one would soon
	// have been answered and wait for the slowest. At S3's latencies that is half of the
	// throughput; the writer's window is four times its requests for the same reason.
	depth = 4
	// DefaultBudget is how many bytes of large objects are fetched ahead.
	DefaultBudget = 64 << 20
)

// Source is where a chain is.
type Source struct {
	Store  store.Store
	Log    fence.ID
	Limits fence.Limits
	Settle *store.SettleOptions
	// Ahead is how many requests are under way at once at most, [DefaultAhead] if 0. Up to
	// three times as many objects wait for their turn, as long as they are not larger than
	// what so many first requests may bring.
	Ahead int
	// First is how many objects a walk asks for at once at its beginning, 1 if 0: for
	// one who knows that there are some.
	First int
	// Budget in bytes is [DefaultBudget] if 0. One large object may exceed it.
	Budget int64
	// Keep tells which objects of data are checked by their checksums and not unpacked,
	// for who puts them elsewhere as they are; nil: none.
	Keep func(*frame.Header) bool
	// Known, if set, is asked for a slot before the store is, and may wait: false if it
	// cannot tell, an object without a body if there is none. Its error ends the walk.
	Known func(ctx context.Context, p fence.Position) (Object, bool, error)
	// Beyond, if set, is called when a walk has come to an absent slot, with the last
	// slot behind it that was found to be taken by then, not by a seal, if any was.
	Beyond func(fence.Position)
}

// Object is what is in a slot: all of it, or the first [Head] bytes, as Info.Size tells.
type Object struct {
	Body []byte
	Info store.Info
}

// Look reads the object in slot p, or its beginning. Absent is store.ErrNotFound.
func (s *Source) Look(ctx context.Context, p fence.Position) (Object, error) {
	body, info, err := s.look(ctx, p, Head)
	return Object{Body: body, Info: info}, err
}

func (s *Source) look(ctx context.Context, p fence.Position, ask int64) ([]byte, store.Info, error) {
	body, info, err := store.Read(ctx, s.Store, layout.DataKey(p), &store.ReadOptions{Length: ask, Settle: s.Settle})
	if errors.Is(err, store.ErrRange) {
		err = fmt.Errorf("%w: %s is empty", fence.ErrCorrupt, layout.DataKey(p))
	}
	return body, info, err
}

// Step is one object of the chain.
type Step struct {
	From, To frame.Point
	Frame    *frame.Frame
	// Stored is set as well if [Source.Keep] has said so. Then Frame has no records:
	// nobody has unpacked them.
	Stored *frame.Stored
	Size   int64
}

// Read reads the object in slot from.Position. Absent is store.ErrNotFound.
func (s *Source) Read(ctx context.Context, from frame.Point) (Step, error) {
	f := newFetch(ctx, from.Position, Head)
	f.fetchHead(s)
	if f.err == nil && f.partial() {
		f.fetchRest(ctx, s)
	}
	return s.judge(from, f)
}

// Walk yields the objects of the chain from a point on, up to the first absent
// slot, where it ends without an error. It yields seals and follows them; the
// caller decides whether a seal can be believed, and breaks off if not.
//
// It begins with First requests and doubles with each object found, so that looking
// at the tail costs one. Requests that it has under way when the loop ends are
// cancelled and waited for.
func (s *Source) Walk(ctx context.Context, from frame.Point) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		w := &walk{Source: s, window: min(max(s.First, 1), s.ahead()), budget: s.Budget, asked: make(chan *fetch, s.ahead()), arrived: make(chan *fetch, s.ahead())}
		if w.budget <= 0 {
			w.budget = DefaultBudget
		}
		defer w.end()
		defer w.drop()
		defer cancel()
		for p := from; ; {
			f := w.next(ctx, p.Position)
			step, err := s.judge(p, f)
			if errors.Is(err, store.ErrNotFound) {
				w.beyond()
				return
			}
			if err != nil {
				yield(step, err)
				return
			}
			if !yield(step, nil) {
				return
			}
			if step.Frame.Kind == frame.Seal {
				// What was fetched behind it is void, and nobody knows how much there is
				// of the next epoch.
				w.drop()
				w.window = 1
			}
			p = step.To
		}
	}
}

// judge decodes what was fetched and applies the chain rule.
func (s *Source) judge(from frame.Point, f *fetch) (Step, error) {
	step := Step{From: from, To: from, Size: f.info.Size}
	if f.err != nil {
		return step, f.err
	}
	var err error
	if step.Stored, err = s.stored(f.body); err == nil && step.Stored != nil {
		step.Frame = &frame.Frame{Header: step.Stored.Header, Cursor: step.Stored.Cursor}
	} else if err == nil {
		step.Frame, err = frame.Decode(f.body, s.Limits)
	}
	if err != nil {
		return step, fmt.Errorf("%s: %w", layout.DataKey(from.Position), err)
	}
	step.To, err = from.Next(s.Log, step.Frame)
	return step, err
}

// stored is an object that is not to be unpacked; nil of others.
func (s *Source) stored(b []byte) (*frame.Stored, error) {
	if s.Keep == nil {
		return nil, nil
	}
	h, err := frame.DecodeHeader(b)
	if err != nil || h.Kind != frame.Data || !s.Keep(&h) {
		return nil, err
	}
	return frame.DecodeStored(b, s.Limits)
}

// walk is the state of one Walk; only its goroutine touches it.
type walk struct {
	*Source
	queue   []*fetch    // of consecutive slots
	window  int         // how long the queue may become
	active  int         // how many of it are still to arrive
	asked   chan *fetch // to the workers
	arrived chan *fetch // from them
	workers int
	running sync.WaitGroup
	held    int64 // bytes of heads in queue that have arrived
	ends    bool  // one in queue has failed: the walk does not go beyond it
	budget  int64
	mean    int64 // of the sizes of the last objects, roughly
}

// next returns the finished fetch of slot p, which follows the one before unless
// the queue was dropped.
func (w *walk) next(ctx context.Context, p fence.Position) *fetch {
	for {
		w.ask(ctx, p)
		f := w.queue[0]
		if f.here {
			break
		}
		w.note(<-w.arrived)
	}
	f := w.queue[0]
	w.startRests(ctx)
	f.wait()
	w.pop()
	if f.err == nil {
		w.window = min(2*w.window, depth*w.ahead())
		w.mean += (f.info.Size - w.mean) / 8
	}
	return f
}

// ask sends requests for the slots behind the queue, which begins at p.
func (w *walk) ask(ctx context.Context, p fence.Position) {
	for len(w.arrived) > 0 {
		w.note(<-w.arrived) // one of them may be the tail
	}
	// The next objects are probably about as large as the last ones were: if these are
	// large, each is asked for at once.
	ask := max(Head, w.mean+w.mean/4)
	for len(w.queue) == 0 || len(w.queue) < w.window && w.active < w.ahead() && !w.ends && w.held < int64(w.ahead())*Head && ask-Head <= w.budget {
		f := newFetch(ctx, fence.Position{Epoch: p.Epoch, Seq: p.Seq + uint64(len(w.queue))}, ask)
		w.active++
		w.reserve(f, ask-Head)
		w.queue = append(w.queue, f)
		// The workers stay: a new one would grow its stack anew for each request, a fifth of
		// what a small one costs the processor.
		if w.workers < w.active {
			w.workers++
			w.running.Go(w.work)
		}
		w.asked <- f
	}
}

func (w *walk) work() {
	for f := range w.asked {
		f.fetchHead(w.Source)
		w.arrived <- f
	}
}

// end ends the workers. Nothing is under way any more.
func (w *walk) end() {
	close(w.asked)
	w.running.Wait()
}

// note is called for each fetch whose head has arrived.
func (w *walk) note(f *fetch) {
	w.active--
	f.here, f.head = true, min(int64(len(f.body)), Head)
	w.held += f.head
	w.ends = w.ends || f.err != nil
}

// pop takes the first of the queue out of it.
func (w *walk) pop() {
	f := w.queue[0]
	w.held -= f.head
	w.release(f)
	w.queue[0] = nil // or the array behind the queue would keep its body
	w.queue = w.queue[1:]
}

// beyond tells what has been found behind an absent slot.
func (w *walk) beyond() {
	if w.Beyond == nil {
		return
	}
	for len(w.arrived) > 0 {
		w.note(<-w.arrived)
	}
	for _, f := range slices.Backward(w.queue) {
		if !f.here || f.err != nil {
			continue
		}
		if h, err := frame.DecodeHeader(f.body); err != nil || h.Kind != frame.Seal {
			w.Beyond(f.pos)
			return
		}
	}
}

// drop cancels what is under way and waits for it.
func (w *walk) drop() {
	for _, f := range w.queue {
		f.cancel()
	}
	for w.active > 0 {
		w.note(<-w.arrived)
	}
	for len(w.queue) > 0 {
		w.queue[0].wait()
		w.pop()
	}
	w.queue, w.ends = nil, false
}

// reserve takes so many bytes of the budget for a fetch, which gives them back when it
// is released.
func (w *walk) reserve(f *fetch, n int64) {
	w.budget -= n
	f.reserved += n
}

func (w *walk) release(f *fetch) { w.budget += f.reserved }

func (s *Source) ahead() int {
	if s.Ahead > 0 {
		return s.Ahead
	}
	return DefaultAhead
}

// startRests asks for the rest of large objects whose head is here, in order, as
// far as the budget goes; for the first in any case.
func (w *walk) startRests(ctx context.Context) {
	for i, f := range w.queue {
		if !f.here {
			return
		}
		if f.rest != nil {
			continue // under way: body and err are its own until it is done
		}
		if f.err != nil {
			return
		}
		if !f.partial() {
			continue
		}
		need := f.info.Size - f.reserved
		if i > 0 && w.budget < need {
			return
		}
		w.reserve(f, need)
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

// fetch is the request for one slot.
type fetch struct {
	pos      fence.Position
	ask      int64              // how much of it
	ctx      context.Context    //nolint:containedctx // of the request, on its way to a worker
	cancel   context.CancelFunc // of the request that is under way
	here     bool               // its head has arrived
	head     int64              // how large it is
	rest     chan struct{}      // closed when the rest is here; nil if not asked for
	reserved int64              // of the budget
	body     []byte
	info     store.Info
	err      error
}

func newFetch(ctx context.Context, pos fence.Position, ask int64) *fetch {
	ctx, cancel := context.WithCancel(ctx)
	return &fetch{pos: pos, ask: ask, ctx: ctx, cancel: cancel}
}

func (f *fetch) fetchHead(s *Source) {
	defer f.cancel()
	if s.Known != nil {
		known, ok, err := s.Known(f.ctx, f.pos)
		if ok {
			if f.body, f.info, f.err = known.Body, known.Info, err; err == nil && known.Body == nil {
				f.err = &store.Error{Op: "get", Key: layout.DataKey(f.pos), Kind: store.ErrNotFound}
			}
			return
		}
	}
	f.body, f.info, f.err = s.look(f.ctx, f.pos, f.ask)
}

// wait waits for the rest, if it was asked for.
func (f *fetch) wait() {
	if f.rest != nil {
		<-f.rest
	}
}

func (f *fetch) partial() bool { return f.info.Size > int64(len(f.body)) }

func (f *fetch) fetchRest(ctx context.Context, s *Source) {
	limit := frame.MaxFrame(s.Limits)
	if f.info.Size > limit {
		f.err = fmt.Errorf("%w: %s has %d bytes; the log allows %d", fence.ErrCorrupt, layout.DataKey(f.pos), f.info.Size, limit)
		return
	}
	off := int64(len(f.body))
	// The buffer grows as bytes arrive, and its head is part of it: a large object that was
	// put together of two would be held twice over.
	whole, info, err := store.Read(ctx, s.Store, layout.DataKey(f.pos), &store.ReadOptions{Offset: off, Length: f.info.Size - off, Append: f.body, Settle: s.Settle})
	switch {
	case err != nil && !errors.Is(err, store.ErrRange):
		f.err = err
	case err != nil || info.Version != f.info.Version:
		// guard:rest-match. Pruned and replaced by a zombie in between, perhaps by
		// something shorter. Absent would be as true: the caller looks at the manifest.
		f.err = &store.Error{Op: "get", Key: layout.DataKey(f.pos), Kind: store.ErrNotFound, Hint: "it changed while it was read"}
	default:
		f.body = whole
	}
}
