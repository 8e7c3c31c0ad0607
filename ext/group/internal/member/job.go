package member

import (
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/assign"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Op is what a job asks its driver to do.
type Op uint8

// The operations. The driver answers each job with one event.
const (
	// List lists the keys that begin with Key.
	List Op = iota + 1
	// Get reads the object Key unless its version is Known.
	Get
	// Create creates the object Key with the contents Doc.
	Create
	// Swap writes Doc over version Known of the object Key.
	Swap
	// Put writes Doc under Key, whatever is there.
	Put
	// Delete deletes Keys.
	Delete
)

func (o Op) String() string {
	return [...]string{"", "list", "get", "create", "swap", "put", "delete"}[o]
}

// Job is one request, with its retries.
type Job struct {
	// N numbers the machine's jobs from 1.
	N     uint64
	Op    Op
	Key   string
	Known store.Version
	// Doc is a Record, Call, Ack, Ready, Head or *assign.Assignment. A job that is repeated has
	// the same Doc and must have the same bytes.
	Doc  any
	Keys []string
	// Until is when the driver gives up.
	Until clock.Instant
}

// Outcome of a job.
type Outcome uint8

// The outcomes.
const (
	// Done: the request succeeded.
	Done Outcome = iota + 1
	// Same: the object still has the version Known.
	Same
	// Absent: there is no such object.
	Absent
	// Refused: the store checked the condition of a write, and it does not hold.
	Refused
	// Failed: there was no answer, or one that tells nothing. A write may still land.
	Failed
	// Denied: the store will never serve the request.
	Denied
	// Unreadable: the object is damaged, or of an unknown format.
	Unreadable
)

// Entry of a listing.
type Entry struct {
	Key     string
	Version store.Version
	// Age is how old the version is by the store's clock, and negative if the store does not tell.
	Age time.Duration
}

// Kind of an event.
type Kind uint8

// The events.
const (
	// Tick: time has passed.
	Tick Kind = iota + 1
	// Join begins the session.
	Join
	// Run: from now on partitions may be started.
	Run
	// Answer: the job N has ended.
	Answer
	// Returned: the work on Partition has returned, and has Failed or not.
	Returned
	// Leave: end the session in good order.
	Leave
)

// Event is what has happened. The instant given to Step with it is after the answer.
type Event struct {
	Kind Kind
	// N is the job.
	N       uint64
	Outcome Outcome
	// Version is that of the object that was read or written.
	Version store.Version
	Doc     any
	Entries []Entry
	// Err is the store's error, for the cause of an end.
	Err error

	Partition int
	Failed    bool
	// Again: it has not failed, and is to be opened again.
	Again bool
}

// Start asks the driver to run the work on a partition.
type Start struct {
	Partition int
	Tenure    uint64
	Token     fence.Token
	// Failures is how often the work has failed in a row.
	Failures int
	// Waited is how long the member has waited for it since it saw that it is the owner, or since the work failed.
	Waited time.Duration
	// Idle is the part of it in which nobody worked on the partition, as far as the member knows.
	Idle time.Duration
}

// Stop asks the driver to end the context of the work on a partition.
type Stop struct {
	Partition int
	Cause     Cause
}

// Cause is why the work on a partition, or the session, was ended.
type Cause string

// The causes.
const (
	// ByDeadline: no heartbeat was applied in time.
	ByDeadline Cause = "expired"
	// ByOthers: somebody else has expired the member.
	ByOthers Cause = "deposed"
	// ByBlindness: the newest assignment could not be read for a validity.
	ByBlindness Cause = "blind"
	// ByHanging: the work on a partition did not return in time.
	ByHanging Cause = "hung"
	// ByLateJoin: the answer to the join came after the deadline.
	ByLateJoin Cause = "joined too late"
	// ByDenial: the store refuses what the member needs.
	ByDenial Cause = "denied"
	// ByDamage: the newest assignment cannot be understood.
	ByDamage Cause = "damaged"
	// ByMoving: the partition belongs to somebody else.
	ByMoving Cause = "moved"
	// ByStalling: the work showed no progress.
	ByStalling Cause = "stalled"
	// ByLeaving: the member leaves.
	ByLeaving Cause = "left"
)

// Ready is what follows from an event.
type Ready struct {
	// Ended is why the session is over, once. The driver first ends the contexts of all
	// partitions.
	Ended Cause
	// Err is what led to it, or nil.
	Err    error
	Starts []Start
	Stops  []Stop
	Jobs   []Job
	// Adopted is the newest assignment, if it is news.
	Adopted *assign.Assignment
	// Notes are what happened, for hooks and logs.
	Notes []Note
	// Wake asks for a Tick at that instant, unless an event comes before.
	Wake clock.Instant
}

// Note tells what this member has done or found out.
type Note struct {
	What      string // one of the notes below
	Member    fence.ID
	Number    uint64
	Partition int
	Took      time.Duration
	Err       error
}

// What a Note says.
const (
	NoteBeat     = "heartbeat"
	NoteExpired  = "expired a member"
	NoteAssigned = "made an assignment"
	NoteParked   = "a partition failed with every owner that tried it"
	NoteWithheld = "a partition hung, and nobody gets it"
)

// Record is the object of a member.
type Record struct {
	Identity        string
	Weight          uint64
	Data            string
	Validity, Renew time.Duration
	Nonce           string
	Renewals        uint64
	// Expired is final. By is who expired the member.
	Expired bool
	By      string
}

// Given is a partition that its owner gives up, under one tenure.
type Given struct {
	Partition int
	Tenure    uint64
	// Fresh asks for a new tenure. Hung: the work did not return when it was told to stop. Sound takes back
	// what was said before: the work is well, or an operator lets it run again. If none is set, the work has
	// failed again and again.
	Fresh, Hung, Sound bool
}

// Call is the object of a call.
type Call struct {
	Nonce string
	Given []Given
}

// Ack is an acknowledgement: its sender has seen the assignment Number, and does not work
// on these partitions under any earlier one.
type Ack struct {
	Nonce      string
	Number     uint64
	Partitions []int
}

// Sign is an object whose key says everything: ready, joined, leaving.
type Sign struct{ Nonce string }

// Head is the hint.
type Head struct {
	Nonce  string
	Group  fence.ID // which the assignment is of
	Number uint64
}

// Format is what a machine must know of group.json.
type Format struct {
	Partitions int
}
