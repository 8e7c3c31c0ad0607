package writer

import (
	"sync"

	"github.com/fencepost/fencepost/internal/frame"
)

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

// newBatch returns an empty batch with memory.
func (w *Writer) newBatch() *batch {
	b := newBatch()
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
