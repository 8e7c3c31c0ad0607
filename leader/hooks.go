package leader

import (
	"time"

	"github.com/fencepost/fencepost/fence"
)

// Hooks are called when something happens, for metrics and traces. Each may be
// nil. They run outside all locks, in goroutines of the elector or of a caller of
// the term. They may use the term and must return soon: the next heartbeat waits for
// them. They must not wait for Confirm or Resign.
//
// All calls for a term have ended when [Elector.Run] returns, when Resign returns
// without an error of its ctx, and before the elector campaigns again.
type Hooks struct {
	// Elected: this elector leads.
	Elected func(Election)
	// Ended: its term is over. The work's context is cancelled already; the work may
	// still be running.
	Ended func(End)
	// Heartbeat: a heartbeat was applied or has failed.
	Heartbeat func(Heartbeat)
	// Leader: while it campaigned, this elector has learnt of another newest lock,
	// or of a change in it: another holder, that its leader has announced that it will
	// leave ([Draining]), has released it, or was deposed, or that it has lapsed. Its
	// own win is the last one.
	Leader func(Record)
}

// Election is the event of [Hooks].Elected.
type Election struct {
	Epoch fence.Epoch
	// Took is the time since Campaign or Run was called.
	Took time.Duration
	// Remaining is how much of the term is left: see [Term.Remaining].
	Remaining time.Duration
}

// End is the event of [Hooks].Ended.
type End struct {
	Epoch fence.Epoch
	Cause *TermError
	// Led is how long the term lasted.
	Led time.Duration
}

// Heartbeat is the event of [Hooks].Heartbeat.
type Heartbeat struct {
	Epoch fence.Epoch
	// Err is nil if it was applied.
	Err error
	// Took is the time from sending it to its outcome. Late is the time from when it
	// was due to its outcome, so that a punctual heartbeat has Late = Took, and Late - Took
	// is how late it was sent.
	Took, Late time.Duration
	// Remaining is how much of the term is left: see [Term.Remaining].
	Remaining time.Duration
}
