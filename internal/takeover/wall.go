package takeover

import (
	"context"
	"errors"
	"math"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
)

// wall is a row of seals of this opener in slots that a busy leader is about to use, from
// base on. The leader may win each race for the next empty slot. But it sends nothing beyond
// its window, and it acknowledges slots in order. So the first of these seals on the chain
// ends its epoch, and what the leader has in flight after that seal is void.
//
// The row ends at the first slot that got a seal, or after four volleys. Then all slots up to
// there are decided. The walk finds them in Have. It comes to that seal, or to a place where
// the next wall begins.
type wall struct {
	o    *opener
	base fence.Position

	mu      sync.Mutex
	slots   []context.CancelFunc // of the requests for each slot from base on; nil once it is decided
	end     uint64               // the lowest slot that is known to hold our seal
	few     chan struct{}        // closed when few slots before end are not decided
	isFew   bool
	objects map[fence.Position]chain.Object
}

// answer is what is known of a slot. If own is true, it holds this opener's seal.
type answer struct {
	found chain.Object
	own   bool
	err   error
}

// wall builds a wall. The leader has probably sent all slots from base up to sent.
func (o *opener) wall(ctx context.Context, base fence.Position, sent uint64) error {
	o.Logger.Info("a busy leader is about to use the next slots; building a wall of seals", zap.Stringer("from", base))
	volley := uint64(min(max(o.Window, chain.DefaultAhead), 256))
	// The backstop goes beyond the first volley. Otherwise both would send to the same slot.
	o.stopAhead(ctx, base, max(uint64(o.InFlight+2*o.Window), volley))
	w := &wall{o: o, base: base, end: math.MaxUint64, few: make(chan struct{}), objects: map[fence.Position]chain.Object{}}
	row, rctx := errgroup.WithContext(ctx)
	row.SetLimit(int(volley))
	for p := base; p.Seq < base.Seq+4*volley; p.Seq++ {
		sctx, more := w.next(rctx, p)
		if !more {
			break
		}
		// Slots up to sent are read first. So are those after the first volley: a leader that
		// has got so far is faster than the row, and the backstop stops it.
		ask := o.seal
		if p.Seq <= sent || p.Seq >= base.Seq+volley {
			ask = o.readOrSeal
		}
		row.Go(func() error { return w.decide(ctx, p, w.race(sctx, p, ask)) })
	}
	err := row.Wait()
	for _, cancel := range w.slots {
		if cancel != nil {
			cancel()
		}
	}
	o.src.Have = w.objects
	return err
}

// next returns the context of the requests for the next slot, if that slot still matters.
func (w *wall) next(ctx context.Context, p fence.Position) (context.Context, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Seq >= w.end || ctx.Err() != nil {
		return nil, false
	}
	ctx, cancel := context.WithCancel(ctx)
	w.slots = append(w.slots, cancel)
	return ctx, true
}

// race asks for slot p, and once more when only few answers are missing, since the walk waits
// for the slowest one.
func (w *wall) race(ctx context.Context, p fence.Position, ask func(context.Context, fence.Position) answer) answer {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	answers := make(chan answer, 2)
	all.Go(func() { answers <- ask(ctx, p) })
	select {
	case a := <-answers:
		return a
	case <-w.few:
	}
	all.Go(func() {
		if a := w.o.readOrSeal(ctx, p); a.err == nil { // else the first request tells
			answers <- a
		}
	})
	return <-answers
}

// decide notes what slot p holds.
func (w *wall) decide(ctx context.Context, p fence.Position, a answer) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.Seq > w.end {
		return nil // cancelled: whatever is there is void
	}
	i := int(p.Seq - w.base.Seq)
	w.slots[i]()
	w.slots[i] = nil
	if a.own {
		w.end = p.Seq
		for _, cancel := range w.slots[i+1:] {
			if cancel != nil {
				cancel()
			}
		}
	}
	if !errors.Is(a.err, fence.ErrCorrupt) { // the walk reads it again, and finds out whether that is damage
		w.objects[p] = a.found
		if a.err != nil {
			return a.err
		}
	}
	w.hurry(ctx)
	return nil
}

// hurry saves time when a seal is there and at most a quarter of the slots before it is not
// decided. It asks for those a second time, and begins to read the manifest. Called with mu
// held.
func (w *wall) hurry(ctx context.Context) {
	if w.end == math.MaxUint64 {
		return
	}
	before := w.slots[:w.end-w.base.Seq]
	open := 0
	for _, cancel := range before {
		if cancel != nil {
			open++
		}
	}
	if open > max(1, len(before)/4) {
		return
	}
	if !w.isFew {
		w.isFew = true
		close(w.few)
	}
	w.o.lookAfter(ctx, fence.Position{Epoch: w.base.Epoch, Seq: w.end})
}
