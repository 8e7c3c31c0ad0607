package takeover

import (
	"context"
	"math"
	"sync"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
)

// wall puts seals of this opener into a row of slots that a busy leader is about to use, from
// base on. The leader may win each race for the next empty slot. But it sends nothing beyond
// its window, and it acknowledges slots in order. So the first of these seals on the chain
// ends its epoch, and what the leader has in flight after that seal is void.
//
// The leader has probably sent all slots up to sent: those are read first, and sealed if they
// are empty. So are those after the first volley: a leader that has got so far is faster than
// the row, and the backstop stops it. When wall returns, each slot is decided up to the first
// one that got a seal. The walk finds most of them in Have, and comes to that seal.
func (o *opener) wall(ctx context.Context, base fence.Position, sent uint64) error {
	o.Logger.Info("a busy leader is about to use the next slots; building a wall of seals", zap.Stringer("from", base))
	o.stopAhead(ctx, base, uint64(o.InFlight+2*o.Window))
	row, ctx := errgroup.WithContext(ctx)
	volley := min(max(o.Window, chain.DefaultAhead), 256)
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
	for seq := base.Seq; ; seq++ {
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
			if len(have) < 4*volley { // the walk reads the others again
				have[p] = found
			}
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
