package writer

import (
	"context"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// batch is one object of the log, from the first record that waits for it to its outcome.
type batch struct {
	frame.Builder
	begun clock.Instant // when it got its first record; only kept with a linger
	hurry bool          // it does not linger; guarded by Writer.mu
	full  bool          // it is not paced by the latency; guarded by Writer.mu
	// appends is how many it has; guarded by Writer.mu.
	appends int
	// Set when it takes its place in the pipeline.
	first  uint64 // offset
	at     fence.Position
	bytes  int // of the payload
	count  int // of records
	cancel context.CancelFunc
	// Set when it is encoded.
	encoded chan struct{} // closed then
	after   frame.Point   // the point after it
	sent    clock.Instant
	stored  int    // bytes of the object
	crc     uint32 // of the object

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
