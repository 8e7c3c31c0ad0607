package takeover

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

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
		// guard:open-reach. If the leader's data is in the slot of a backstop already, the opener tries
		// a slot twice as far ahead.
		//
		//mutant:replace ahead *= 2 => _ = ahead
		for ; ; ahead *= 2 {
			p := fence.Position{Epoch: at.Epoch, Seq: at.Seq + ahead}
			a := o.seal(ctx, p)
			if a.err != nil {
				b.err <- a.err
				return
			}
			// tuning:wall-far. An opener sends no further backstop once a slot far ahead holds a seal,
			// its own or another opener's.
			//
			//mutant:replace err != nil || h.Kind != frame.Data => ahead > 1<<20 && (err != nil || h.Kind != frame.Data)
			if h, err := frame.DecodeHeader(a.found.Body); err != nil || h.Kind != frame.Data {
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
