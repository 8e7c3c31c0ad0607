package writer

import (
	"context"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/clock"
)

// batch is one object of the log, from the first record that waits for it to its
// outcome.
type batch struct {
	fence.Builder
	since clock.Instant // when it got its first record; only kept with a linger
	hurry bool          // it is not to linger; guarded by Writer.mu
	// Set when it is sent.
	first  uint64 // offset
	at     fence.Position
	after  fence.Point // the chain behind it, if it is committed
	sent   clock.Instant
	bytes  int
	count  int // of records
	cancel context.CancelFunc

	applied bool // its object is in the store; guarded by Writer.mu
	settled clock.Instant
	done    chan struct{} // closed when err is final
	err     error
}

func newBatch() *batch { return &batch{done: make(chan struct{})} }

// Future is the outcome of an [Writer.AppendAsync], now or later.
type Future struct {
	b     *batch
	index int
}

// Wait returns the offset of the first record once the append is durable and
// part of the history for ever. Otherwise its error is an [AppendError], which
// says whether the records can still become part of it. If ctx ends first the
// error is [ErrUnknown] with ctx's cause; the append goes on, and Wait may be
// called again.
func (f Future) Wait(ctx context.Context) (uint64, error) {
	select {
	case <-f.b.done:
	default:
		select {
		case <-f.b.done:
		case <-ctx.Done():
			// guard:slot-context. A caller who gives up abandons its wait, not the slot: an
			// append that is not there can still land.
			//
			//mutant:replace return => f.b.cancel(); return
			return 0, unknown(context.Cause(ctx))
		}
	}
	if f.b.err != nil {
		return 0, f.b.err
	}
	return f.b.first + uint64(f.index), nil
}

// Done is closed when Wait would return at once.
func (f Future) Done() <-chan struct{} { return f.b.done }

// AppendOption is an addition to an append.
type AppendOption struct {
	cursor    []byte
	hasCursor bool
}

// Cursor stores the producer's position with the records, in one atom: a Kafka
// offset, a place in a file. The next leader finds the last committed one in
// [Recovered] and so resumes exactly where the history ends. An empty cursor
// takes back what was set before.
func Cursor(c []byte) AppendOption { return AppendOption{cursor: c, hasCursor: true} }
