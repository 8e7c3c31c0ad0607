package reader

import (
	"time"

	"github.com/fencepost/fencepost/fence"
)

// Hooks are called when something happens, for metrics and traces. Each may be nil. They are
// called outside of all locks, by the goroutine that runs the loop over the records, which
// waits for them. Loops of one Reader that run at once call them at once.
type Hooks struct {
	// Delivered: the caller has taken the records of an object of the log, or of a block of a
	// segment.
	Delivered func(Delivery)
	// Tail: the loop has come to the end of the log, and all before it is delivered. A loop that
	// follows the log tells so each time that it finds nothing new.
	Tail func(Tail)
}

// Delivery is the event of [Hooks].Delivered.
type Delivery struct {
	// Records and Bytes that the caller took. Next is the offset of the record after them.
	Records int
	Bytes   int64
	Next    uint64
	// Time is the writer's time of day, as of [Record].Time.
	Time time.Time
}

// Tail is the event of [Hooks].Tail.
type Tail struct {
	// Position and Offset of the first slot that is empty.
	Position fence.Position
	Offset   uint64
}
