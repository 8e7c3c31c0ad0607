package leader

import (
	"time"

	"github.com/fencepost/fencepost/fence"
)

// Hooks are called when something happens, for metrics and traces. Each may be
// nil. They run in the elector's own goroutines, outside of every lock, and
// should be quick: a heartbeat waits for the hook of the one before.
type Hooks struct {
	// Elected: this elector leads.
	Elected func(Election)
	// Ended: its term is over. It is called when the work's context has been
	// cancelled, before the work has ended.
	Ended func(End)
	// Heartbeat: a heartbeat was applied or failed.
	Heartbeat func(Heartbeat)
	// Leader: a candidate has learnt of another newest lock, itself included.
	Leader func(Record)
}

// Election tells of a win.
type Election struct {
	Epoch fence.Epoch
	// Took is the time since Campaign was called.
	Took time.Duration
}

// End tells of a term's end.
type End struct {
	Epoch fence.Epoch
	Cause *TermError
	// Led is how long the term lasted.
	Led time.Duration
}

// Heartbeat tells of one heartbeat and how busy the leader was since the one
// before.
type Heartbeat struct {
	Epoch fence.Epoch
	// Err is nil if it was applied.
	Err error
	// Took is the time from sending it to knowing its outcome; Late is how long
	// after its time that was.
	Took, Late time.Duration
	// Remaining is what is left of the term.
	Remaining time.Duration
	// Busy is the share of time, 0 to 1, in which at least one piece of work was
	// between Begin and End; Queue is the last value given to SetQueue.
	Busy  float64
	Queue int64
}
