package writer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/store"
)

// batch is one object of the log, from the first record that waits for it to its outcome.
type batch struct {
	frame.Builder
	begun  clock.Instant // when it got its first record; only kept with a linger
	hurry  bool          // it does not linger; guarded by Writer.mu
	full   bool          // it is not paced by the latency; guarded by Writer.mu
	edit   []byte        // the document, if it holds one; guarded by Writer.mu
	clock  clock.Clock
	outage *outage.Log // of its requests, and those before it
	// appends is how many it has; guarded by Writer.mu.
	appends int
	// Set when it takes its place in the pipeline.
	first  uint64 // offset
	at     fence.Position
	bytes  int // of the payload
	count  int // of records
	cancel context.CancelFunc
	hedge  *store.Hedge // nil if it is not sent twice
	// overtaken is closed when an object after this one is applied first, nil if nobody asks;
	// passed says that it is closed. Guarded by Writer.mu.
	overtaken chan struct{}
	passed    bool
	// Set when it is encoded.
	encoded chan struct{} // closed then
	after   frame.Point   // the point after it
	sent    clock.Instant
	stored  int    // bytes of the object
	crc     uint32 // of the object
	clean   bool   // it took one request

	// Guarded by Writer.mu.
	applied      bool          // its object is in the store
	answered     clock.Instant // its request
	acknowledged clock.Instant // only kept for the hook

	done chan struct{} // closed when err is final
	err  error
}

func newBatch() *batch {
	return &batch{done: make(chan struct{}), encoded: make(chan struct{})}
}

// buffers reuses the memory of objects. Otherwise as much as is in flight would wait for
// the garbage collector, which runs when the heap has doubled. What is idle it collects.
type buffers struct{ payload, packed sync.Pool }

func getBuffer(p *sync.Pool) []byte {
	if b, ok := p.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

func putBuffer(p *sync.Pool, b []byte) {
	if cap(b) > 0 {
		p.Put(&b)
	}
}

// pending explains why a wait has ended before the batch was acknowledged.
func (b *batch) pending(err error) error {
	if why, failing := errors.AsType[*outage.Error](b.outage.Explain(err)); failing {
		return why
	}
	select {
	case <-b.encoded:
		return fmt.Errorf("%w (its object was sent %v ago)", err, b.clock.Now().Sub(b.sent).Round(time.Millisecond))
	default:
		return err
	}
}

// newBatch returns an empty batch with memory.
func (w *Writer) newBatch() *batch {
	b := newBatch()
	b.outage, b.clock = w.outage, w.opts.Clock
	b.Lend(getBuffer(&w.buffers.payload), getBuffer(&w.buffers.packed))
	return b
}

// release frees a batch's memory after its object is encoded. It frees at once what the
// object does not lie in, and the rest when the function returned is called.
//
// Call that only once the slot is known to be applied. A transport whose request was
// cancelled, or answered early, may still read from the object, against what package store
// asks of a driver. What it then sends is for a slot that is taken.
func (w *Writer) release(b *batch, codec frame.Codec) (free func()) {
	payload, packed := b.Release()
	object, rest := &w.buffers.payload, &w.buffers.packed
	if codec == frame.Zstd {
		payload, packed = packed, payload
		object, rest = rest, object
	}
	putBuffer(rest, packed)
	return func() { putBuffer(object, payload) }
}
