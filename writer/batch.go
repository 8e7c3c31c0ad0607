package writer

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// batch is one object of the log, from the first record that waits for it to its
// outcome.
type batch struct {
	frame.Builder
	since clock.Instant // when it got its first record; only kept with a linger
	hurry bool          // it is not to linger; guarded by Writer.mu
	// Set when it takes its place in the pipeline.
	first  uint64 // offset
	at     fence.Position
	bytes  int // of the payload
	count  int // of records
	cancel context.CancelFunc
	// Set when it is encoded.
	encoded chan struct{} // closed then
	after   frame.Point   // the chain behind it, if it is committed
	sent    clock.Instant
	stored  int    // bytes of the object
	crc     uint32 // of the object

	applied      bool // its object is in the store; guarded by Writer.mu
	settled      clock.Instant
	acknowledged clock.Instant // only kept for the hook
	done         chan struct{} // closed when err is final
	err          error
}

func newBatch() *batch {
	return &batch{done: make(chan struct{}), encoded: make(chan struct{})}
}

// Future is the outcome of an [Writer.AppendAsync], now or later. The zero Future, and
// one that was returned with an error, is of no append: it is done, and Wait returns an
// error that is [ErrNotCommitted].
type Future struct {
	b     *batch
	index int
}

// refused is of an append that was not taken.
func refused(err error) Future {
	return Future{b: &batch{done: closed, err: err}}
}

// none is what the zero Future is of.
var none = refused(notCommitted(errors.New("writer: the zero Future is of no append"))).b

// closed is done for ever.
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

// Wait returns the offset of the first record once the append is durable and
// part of the history for ever. Otherwise its error is an [AppendError], which
// says whether the records can still become part of it. If ctx ends first the
// error is [ErrUnknown] with ctx's cause; the append goes on, and Wait may be
// called again.
func (f Future) Wait(ctx context.Context) (uint64, error) {
	b := f.batch()
	select {
	case <-b.done:
	default:
		select {
		case <-b.done:
		case <-ctx.Done():
			// guard:slot-context. A caller who gives up abandons its wait, not the slot: an
			// append that is not there can still land.
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
