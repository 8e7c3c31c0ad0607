package lease

import (
	"errors"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Op is what a candidate asks its driver to do.
type Op uint8

// The operations. The driver answers each one with one event.
const (
	// List finds the highest epoch: Listed or Failed.
	List Op = iota + 1
	// Get reads the lock Epoch unless its version is Known: Got, Same, Gone,
	// Unreadable or Failed.
	Get
	// Depose swaps the lock Epoch from version Known to expired: Applied or Refused.
	Depose
	// Create creates the lock Epoch: Applied or Refused. If Next is not 0, the lock
	// is a milestone: it is created expired, and Next follows it.
	Create
	// Confirm swaps the candidate's own lock from version Known: Applied or Refused.
	Confirm
	// Wait does nothing until the instant Until: Woke.
	Wait
	// Lead ends the machine: this candidate has won Epoch.
	Lead
	// Fail ends the machine with Err.
	Fail
)

// Action is what to do next.
type Action struct {
	Op    Op
	Epoch fence.Epoch
	// After lets a listing skip this epoch and lower ones.
	After fence.Epoch
	Next  fence.Epoch // of Create
	Known store.Version
	Nonce string
	Until clock.Instant
	Sent  clock.Instant // of Lead: when the write that the first deadline counts from was sent
	Err   error
	// Dead, of Depose: the holder is the dead predecessor of this candidate.
	Dead bool
	// Report, if not nil, is news of who leads. It may come with any Op.
	Report *Report
}

// Report says who leads. A listing has shown its lock as the newest.
type Report struct {
	// Lock is the newest lock; its Epoch is 0 if there is none.
	Lock Lock
	// Lapsed says that its holder has stopped renewing it.
	Lapsed bool
	// Dead says that its holder was the predecessor of this candidate, which is dead. Such
	// a lock counts as Lapsed.
	Dead bool
}

// Kind of an event.
type Kind uint8

// The events of a candidate.
const (
	Start Kind = iota + 1
	Listed
	Got
	Same
	Gone
	Unreadable
	Applied
	Refused
	Failed
	Woke
)

// Age is how old a version is by the store's own clock: Date − Last-Modified
// of one response, ± Slack.
type Age struct{ Since, Slack time.Duration }

// Event is the outcome of an action. The instant given to Step with it is after
// the response.
type Event struct {
	Kind Kind
	// Sent is an instant before the request's first attempt was sent.
	Sent clock.Instant
	// Epoch and Version are those of the highest lock of a listing, or 0 and "" if
	// there is none. Version is also the version that an applied write made.
	Epoch   fence.Epoch
	Version store.Version
	Lock    Lock // of Got
	Age     *Age // of Got; nil if the store does not tell
	// Clean says that an applied write was sent once and answered. Then no copy of
	// it can land later.
	Clean bool
	Err   error // of Unreadable
}

var (
	// ErrNumbers says that the highest possible epoch is used.
	ErrNumbers = errors.New("lease: no epoch is left: the highest number is used")
	// ErrVanished says that a listing lacks a lock that was stored before it began.
	ErrVanished = errors.New("lease: a listing lacks a lock that was stored before it began")
)
