// Package chain walks the log's chain in a store: many objects are fetched at
// once, all are judged in order.
package chain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

const (
	// Head is how much of an object the first request asks for, at least, in bytes. Most
	// objects are smaller and cost one request; of the others nobody holds more than this
	// until it is their turn, or until there is room for others like the last one.
	Head = 256 << 10
	// DefaultAhead is how many objects are fetched ahead at most.
	DefaultAhead = 64
	// DefaultBudget is how many bytes of large objects are fetched ahead.
	DefaultBudget = 64 << 20
)

// Source is where a chain is.
type Source struct {
	Store  store.Store
	Log    fence.ID
	Limits fence.Limits
	Settle *store.SettleOptions
	// Ahead is [DefaultAhead] if 0.
	Ahead int
	// First is how many objects a walk asks for at once at its beginning, 1 if 0: for
	// one who knows that there are some.
	First int
	// Budget in bytes is [DefaultBudget] if 0. One large object may exceed it.
	Budget int64
	// Keep tells which objects of data are checked by their checksums and not unpacked,
	// for who puts them elsewhere as they are; nil: none.
	Keep func(*fence.Header) bool
	// Known, if set, is asked for a slot before the store is, and may wait: false if it
	// cannot tell, an object without a body if there is none. Its error ends the walk.
	// Beyond, if set, is called when a walk has come to an absent slot, with the last slot behind it
	// that was found to be taken by then, if any was.
	Beyond func(fence.Position)
	Known  func(ctx context.Context, p fence.Position) (Object, bool, error)
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
	body, info, err := store.ReadRange(ctx, s.Store, p.Key(), store.GetOptions{Length: ask}, ask, s.Settle)
	if errors.Is(err, store.ErrRange) {
		err = fmt.Errorf("%w: %s is empty", fence.ErrCorrupt, p.Key())
	}
	return body, info, err
}

// Step is one object of the chain.
type Step struct {
	From, To fence.Point
	Frame    *fence.Frame
	// Stored is set as well if [Source.Keep] has said so. Then Frame has no records:
	// nobody has unpacked them.
	Stored *fence.Stored
	Size   int64
}

// Read reads the object in slot from.Position. Absent is store.ErrNotFound.
func (s *Source) Read(ctx context.Context, from fence.Point) (Step, error) {
	f := s.fetch(ctx, from.Position, Head)
	<-f.done
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
func (s *Source) Walk(ctx context.Context, from fence.Point) iter.Seq2[Step, error] {
	return func(yield func(Step, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		w := &walk{Source: s, window: min(max(s.First, 1), s.ahead()), budget: s.Budget}
		if w.budget <= 0 {
			w.budget = DefaultBudget
		}
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
			if step.Frame.Kind == fence.Seal {
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
func (s *Source) judge(from fence.Point, f *fetch) (Step, error) {
	step := Step{From: from, To: from, Size: f.info.Size}
	if f.err != nil {
		return step, f.err
	}
	var err error
	if step.Stored, err = s.stored(f.body); err == nil && step.Stored != nil {
		step.Frame = &fence.Frame{Header: step.Stored.Header, Cursor: step.Stored.Cursor}
	} else if err == nil {
		step.Frame, err = fence.Decode(f.body, s.Limits)
	}
	if err != nil {
		return step, fmt.Errorf("%s: %w", from.Position.Key(), err)
	}
	step.To, err = from.Next(s.Log, step.Frame)
	return step, err
}

// stored is an object that is not to be unpacked; nil of others.
func (s *Source) stored(b []byte) (*fence.Stored, error) {
	if s.Keep == nil {
		return nil, nil
	}
	h, err := fence.DecodeHeader(b)
	if err != nil || h.Kind != fence.Data || !s.Keep(&h) {
		return nil, err
	}
	return fence.DecodeStored(b, s.Limits)
}

// walk is the state of one Walk; only its goroutine touches it.
type walk struct {
	*Source
	queue  []*fetch // of consecutive slots
	window int
	budget int64
	mean   int64 // of the sizes of the last objects, roughly
}

// next returns the finished fetch of slot p, which follows the one before unless
// the queue was dropped.
func (w *walk) next(ctx context.Context, p fence.Position) *fetch {
	// The next objects are probably about as large as the last ones were: if these are
	// large, each is asked for at once.
	ask := max(Head, w.mean+w.mean/4)
	for len(w.queue) < w.window && (len(w.queue) == 0 || ask-Head <= w.budget) {
		f := w.fetch(ctx, fence.Position{Epoch: p.Epoch, Seq: p.Seq + uint64(len(w.queue))}, ask)
		w.reserve(f, ask-Head)
		w.queue = append(w.queue, f)
	}
	f := w.queue[0]
	<-f.done
	w.startRests(ctx)
	f.wait()
	w.release(f)
	w.queue[0] = nil // or the array behind the queue would keep its body
	w.queue = w.queue[1:]
	if f.err == nil {
		w.window = min(2*w.window, w.ahead())
		w.mean += (f.info.Size - w.mean) / 8
	}
	return f
}

// beyond tells what has been found behind an absent slot.
func (w *walk) beyond() {
	if w.Beyond == nil {
		return
	}
	for _, f := range slices.Backward(w.queue) {
		select {
		case <-f.done:
			if f.err == nil {
				w.Beyond(f.pos)
				return
			}
		default:
		}
	}
}

// drop cancels what is under way and waits for it.
func (w *walk) drop() {
	for _, f := range w.queue {
		f.cancel()
	}
	for _, f := range w.queue {
		f.wait()
		w.release(f)
	}
	w.queue = nil
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
		select {
		case <-f.done:
		default:
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
	cancel   context.CancelFunc // of the request that is under way
	done     chan struct{}      // closed when the head is here
	rest     chan struct{}      // closed when the rest is here; nil if not asked for
	reserved int64              // of the budget
	body     []byte
	info     store.Info
	err      error
}

func (s *Source) fetch(ctx context.Context, pos fence.Position, ask int64) *fetch {
	ctx, cancel := context.WithCancel(ctx)
	f := &fetch{pos: pos, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		defer cancel()
		if s.Known != nil {
			known, ok, err := s.Known(ctx, pos)
			if f.body, f.info, f.err = known.Body, known.Info, err; ok {
				if err == nil && known.Body == nil {
					f.err = &store.Error{Op: "get", Key: pos.Key(), Kind: store.ErrNotFound}
				}
				return
			}
		}
		f.body, f.info, f.err = s.look(ctx, pos, ask)
	}()
	return f
}

func (f *fetch) wait() {
	<-f.done
	if f.rest != nil {
		<-f.rest
	}
}

func (f *fetch) partial() bool { return f.info.Size > int64(len(f.body)) }

func (f *fetch) fetchRest(ctx context.Context, s *Source) {
	limit := s.Limits.MaxFrame()
	if f.info.Size > limit {
		f.err = fmt.Errorf("%w: %s has %d bytes; the log allows %d", fence.ErrCorrupt, f.pos.Key(), f.info.Size, limit)
		return
	}
	off := int64(len(f.body))
	rest, info, err := store.ReadRange(ctx, s.Store, f.pos.Key(), store.GetOptions{Offset: off, Length: f.info.Size - off}, limit, s.Settle)
	switch {
	case err != nil && !errors.Is(err, store.ErrRange):
		f.err = err
	case err != nil || info.Version != f.info.Version:
		// guard:rest-match. Pruned and replaced by a zombie in between, perhaps by
		// something shorter. Absent would be as true: the caller looks at the manifest.
		f.err = &store.Error{Op: "get", Key: f.pos.Key(), Kind: store.ErrNotFound, Hint: "it changed while it was read"}
	default:
		whole := make([]byte, 0, f.info.Size)
		f.body = append(append(whole, f.body...), rest...)
	}
}
