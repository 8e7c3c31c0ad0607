package writer

import (
	"context"
	"sync"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// longWalk is how many windows of objects an opener reads before it supposes that the leader
// may be the faster one.
const longWalk = 16

// backstop is a seal far ahead, on a slot that the leader has not come to, put there while its
// objects are read. A leader that appends faster than they can be read (it may have more requests
// under way than we have, and its store may take writes faster than it serves reads) is never
// caught up with, and who waits for the first empty slot waits for ever. It stops at this one.
//
// It is one seal of a wall, and sent before there is one: if the walk comes to an empty slot first,
// that is sealed as ever, and this one is void.
type backstop struct {
	epoch  fence.Epoch
	cancel context.CancelFunc
	task   sync.WaitGroup
	err    chan error // of the store; holds one
}

// failed returns why there is no seal ahead and none will come. Without one the walk may
// have no end, and it only reads: it does not meet that error.
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

// stopAhead puts a seal ahead of the walk, once for each epoch, when it has read many of its
// objects: it began at from, and is at at.
//
// Whether it lands, and when, nobody waits for. The epoch is before ours, whichever way has
// led into it, so who is stopped is deposed. And the walk comes to this seal only through
// objects that fit its own offset, so what it believes behind it is so.
func (o *opening) stopAhead(ctx context.Context, from, at fence.Position) {
	read := at.Seq - from.Seq
	if at.Epoch != from.Epoch || read < longWalk*uint64(o.opts.Window) || o.backstop != nil && o.backstop.epoch == at.Epoch {
		return
	}
	o.endBackstop()
	b := &backstop{epoch: at.Epoch, err: make(chan error, 1)}
	ctx, b.cancel = context.WithCancel(ctx)
	o.backstop = b
	b.task.Go(func() {
		// Nobody knows how far the leader is. It is twice as far each time, so it is found
		// in few steps, and what it still appends is no more than there was.
		for ahead := read; ; ahead *= 2 {
			p := fence.Position{Epoch: at.Epoch, Seq: at.Seq + ahead}
			found, own, err := o.seal(ctx, p)
			if err != nil {
				b.err <- err
				return
			}
			if own {
				o.opts.Logger.Info("much is still to be read; a seal far ahead stops a leader that may go on", zap.Stringer("slot", p))
				return
			}
			if h, err := frame.DecodeHeader(found.Body); err != nil || h.Kind != frame.Data {
				return // another opener's: the leader does not come past it
			}
		}
	})
}

// endBackstop breaks off what is under way and waits for it.
func (o *opening) endBackstop() {
	if b := o.backstop; b != nil {
		o.backstop = nil
		b.cancel()
		b.task.Wait()
	}
}
