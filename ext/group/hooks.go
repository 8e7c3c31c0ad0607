package group

import (
	"time"

	"github.com/fencepost/fencepost/fence"
)

// Hooks are called when something happens, for metrics and traces. Each may be nil. They run
// outside all locks, in goroutines of the group. They must return soon, and must not wait for
// [Group.Leave].
//
// All calls but those of Parked have ended when [Group.Run] returns.
type Hooks struct {
	// Opened: the work on a partition begins.
	Opened func(Opening)
	// Closed: the work on a partition has returned.
	Closed func(Closing)
	// Assigned: this member has read a new assignment.
	Assigned func(Assigned)
	// Heartbeat: a heartbeat was applied or has failed.
	Heartbeat func(Heartbeat)
	// Parked: three members in a row have given a partition up. It stays with the last one, who tries again every
	// five minutes. If its work hung with the last one, nobody owns it until somebody calls [Retry]. Only the
	// member that organises is told.
	Parked func(Parking)
	// Ended: the session is over. All contexts have ended; work may still be running.
	Ended func(End)
}

// Opening is the event of [Hooks].Opened.
type Opening struct {
	Partition int
	Token     fence.Token
	// Failures is how often the work has failed in a row before this opening.
	Failures int
	// Waited is how long this member has waited for those who worked on the partition before, or since the work failed.
	Waited time.Duration
}

// Closing is the event of [Hooks].Closed.
type Closing struct {
	Partition int
	Token     fence.Token
	// Cause is why the work's context had ended, or nil: the work returned of its own will.
	Cause *EndError
	// Err is what the work returned; nil if that was [ErrAgain].
	Err error
	// Ran is how long the work ran.
	Ran time.Duration
}

// Assigned is the event of [Hooks].Assigned.
type Assigned struct {
	Number uint64
	// Partitions is how many there are; Owned how many of them this member owns.
	Partitions, Owned int
	// Members is how many members the assignment lists.
	Members int
}

// Heartbeat is the event of [Hooks].Heartbeat.
type Heartbeat struct {
	// Err is nil if it was applied.
	Err error
	// Took is the time from sending it to its outcome.
	Took time.Duration
	// Remaining is how long the session lasts if no further heartbeat is applied.
	Remaining time.Duration
}

// Parking is the event of [Hooks].Parked.
type Parking struct {
	Partition int
	// Unowned says that nobody owns the partition, because its work hung.
	Unowned bool
}

// End is the event of [Hooks].Ended.
type End struct {
	// Member is the name of the session.
	Member string
	Cause  *EndError
}
