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
	"github.com/fencepost/fencepost/internal/frame"
)

// wall puts seals of this opener into a row of slots that a busy leader is about to use, from
// base on. The leader may win each race for the next empty slot. But it sends nothing beyond
// its window, and it acknowledges slots in order. So the first of these seals on the chain
// ends its epoch, and what the leader has in flight after that seal is void.
//
// The leader has probably sent all slots up to sent: those are read first, and sealed if they
// are empty. So are those after the first volley: a leader that has got so far is faster than
// the row, and the backstop stops it. The row ends at the first slot that got a seal, or after
// four volleys; then all slots up to there are decided. The walk finds them in Have. It comes to
// that seal, or to a place where the next wall begins.
func (o *opener) wall(ctx context.Context, base fence.Position, sent uint64) error {
	o.Logger.Info("a busy leader is about to use the next slots; building a wall of seals", zap.Stringer("from", base))
	volley := min(max(o.Window, chain.DefaultAhead), 256)
	// The backstop goes beyond the first volley. Otherwise both would send to the same slot.
	o.stopAhead(ctx, base, uint64(max(o.InFlight+2*o.Window, volley)))
	row, ctx := errgroup.WithContext(ctx)
	row.SetLimit(volley)
	var mu sync.Mutex
	var requests []context.CancelFunc
	have := map[fence.Position]chain.Object{}
	end := uint64(math.MaxUint64) // the lowest slot that is known to hold our seal
	next := func(seq uint64) (rctx context.Context, more bool) {
		mu.Lock()
		defer mu.Unlock()
		rctx, stop := context.WithCancel(ctx)
		requests = append(requests, stop)
		return rctx, seq < end && ctx.Err() == nil
	}
	for seq := base.Seq; seq < base.Seq+4*uint64(volley); seq++ {
		rctx, more := next(seq)
		if !more {
			break
		}
		row.Go(func() error {
			p := fence.Position{Epoch: base.Epoch, Seq: seq}
			decide := o.seal
			if seq <= sent || seq >= base.Seq+uint64(volley) {
				decide = o.readOrSeal
			}
			found, own, err := decide(rctx, p)
			mu.Lock()
			defer mu.Unlock()
			if seq > end {
				return nil // cancelled: whatever is there is void
			}
			if own {
				end = seq
				for _, stop := range requests[seq-base.Seq+1:] {
					stop()
				}
			}
			if errors.Is(err, fence.ErrCorrupt) {
				return nil // the walk reads it again, and finds out whether that is damage
			}
			have[p] = found
			return err
		})
	}
	err := row.Wait()
	for _, stop := range requests {
		stop()
	}
	o.src.Have = have
	return err
}

// longWalk is how many windows of objects an opener reads before it puts a backstop ahead.
const longWalk = 16

// backstop is one seal far ahead of the walk or the wall, in a slot that the leader has not
// reached. It stops a leader that appends faster than the opener reads or seals: one that has
// more requests in flight, or a store that takes writes faster than it serves reads.
//
// The opener does not wait for it. If the walk comes to an empty slot first, the opener
// seals that slot as ever, and the backstop is void. If the walk comes to the backstop, it
// has come through objects that fit its path, so its offset is right.
type backstop struct {
	epoch  fence.Epoch // which it ends
	cancel context.CancelFunc
	task   sync.WaitGroup
	err    chan error // of the store; holds one
}

// failed returns why there is no backstop and none will come. Without one the walk may have
// no end, and it would not meet that error itself: it only reads.
func (b *backstop) failed() error {
	if b == nil {
		return nil
	}
	select {
	case err := <-b.err:
		return err
	default:
		return nil
	}
}

// stopAhead puts a backstop ahead of slot at, once for each epoch.
func (o *opener) stopAhead(ctx context.Context, at fence.Position, ahead uint64) {
	if o.backstop != nil && o.backstop.epoch == at.Epoch {
		return
	}
	o.endBackstop()
	b := &backstop{epoch: at.Epoch, err: make(chan error, 1)}
	ctx, b.cancel = context.WithCancel(ctx)
	o.backstop = b
	b.task.Go(func() {
		// guard:open-reach. It is not known how far the leader is. Each next slot is twice as
		// far ahead, so a few requests find one that the leader has not reached. Without this:
		// a leader has a larger window than the opener, and appends faster than the opener
		// reads or seals; it has used the slot of every seal before that arrives; the takeover
		// never ends.
		//
		//mutant:replace ahead *= 2 => _ = ahead
		for ; ; ahead *= 2 {
			p := fence.Position{Epoch: at.Epoch, Seq: at.Seq + ahead}
			found, _, err := o.seal(ctx, p)
			if err != nil {
				b.err <- err
				return
			}
			// guard:wall-far. Once a seal is there, the opener's or another's, no further one is
			// sent. Without this check: the seal ends the epoch; the opener sends another one
			// twice as far ahead, and so on, all of them void.
			if h, err := frame.DecodeHeader(found.Body); err != nil || h.Kind != frame.Data {
				o.Logger.Info("a seal far ahead stops a leader that may go on", zap.Stringer("slot", p))
				return
			}
		}
	})
}

// endBackstop cancels what is in flight of a backstop and waits for it.
func (o *opener) endBackstop() {
	if b := o.backstop; b != nil {
		o.backstop = nil
		b.cancel()
		b.task.Wait()
	}
}
