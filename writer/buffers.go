package writer

import (
	"sync"

	"github.com/fencepost/fencepost/internal/frame"
)

// buffers keeps the memory of frames, to be used again: otherwise as much as is in
// flight would wait for the garbage collector, which comes when there is twice as
// much. What is idle it takes away all the same.
type buffers struct{ payload, packed sync.Pool }

func take(p *sync.Pool) []byte {
	if b, ok := p.Get().(*[]byte); ok {
		return *b
	}
	return nil
}

func give(p *sync.Pool, b []byte) {
	if cap(b) > 0 {
		p.Put(&b)
	}
}

// newBatch returns an empty batch with memory.
func (w *Writer) newBatch() *batch {
	b := newBatch()
	b.Lend(take(&w.buffers.payload), take(&w.buffers.packed))
	return b
}

// release takes a batch's memory after its frame is made: what the frame does not
// lie in is free at once, the rest when the function returned is called.
//
// That is only done once the slot is known to be applied. A transport that was
// answered early, or given up, may go on reading from the frame, against what package
// store asks of a driver. What it then sends is for a slot that is taken.
func (w *Writer) release(b *batch, codec frame.Codec) (free func()) {
	payload, packed := b.Release()
	kept, rest := &w.buffers.payload, &w.buffers.packed
	if codec == frame.Zstd {
		payload, packed = packed, payload
		kept, rest = rest, kept
	}
	give(rest, packed)
	return func() { give(kept, payload) }
}
