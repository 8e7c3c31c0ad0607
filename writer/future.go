package writer

import (
	"context"
	"errors"
)

// Future is the outcome of an append, now or later. The zero Future, and one that was
// returned with an error, is of no append: it is done, and Wait returns an error that is
// [ErrNotCommitted].
type Future struct {
	b     *batch
	index int // of the first record in the batch
}

// failedFuture is the outcome of an append that was not enqueued.
func failedFuture(err error) Future {
	return Future{b: &batch{done: closed, err: err}}
}

// none is the batch of the zero Future.
var none = failedFuture(notCommitted(errors.New("writer: the zero Future is of no append"))).b

// closed is closed always.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (f Future) batch() *batch {
	if f.b == nil {
		return none
	}
	return f.b
}

// Wait returns the offset of the first record once the append is durable and part of the
// history for ever. Otherwise its error wraps the reason. It is [ErrNotCommitted] if the
// records can no longer become part of the history, and [ErrUnknown] if they can. If ctx
// ends first, the error is ErrUnknown with ctx's cause. The append goes on, and Wait may be
// called again.
func (f Future) Wait(ctx context.Context) (uint64, error) {
	b := f.batch()
	select {
	case <-b.done:
	default:
		select {
		case <-b.done:
		case <-ctx.Done():
			// guard:slot-context. A caller whose ctx ends abandons its wait, and not the slot.
			// Otherwise: the caller's ctx ends while its request is in flight; the request is
			// cancelled with an unknown outcome, and the writer stops for one impatient caller.
			//
			//mutant:replace return => b.cancel(); return
			return 0, unknown(context.Cause(ctx))
		}
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.first + uint64(f.index), nil
}

// Done is closed when Wait would return at once.
func (f Future) Done() <-chan struct{} { return f.batch().done }
