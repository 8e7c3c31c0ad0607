package outside

import (
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
)

// State is what is known of one log, group or lock. It marshals to JSON. It is read-only.
type State struct {
	URL  string `json:"url"`
	Kind string `json:"kind"` // "log", "group" or "lock"; empty until it is known
	// Now is the watcher's time. Asked is when the store last answered.
	Now   time.Time `json:"now"`
	Asked time.Time `json:"asked,omitzero"`
	// Read is when a group, or who leads, was last read. If Err is set, what goes on with time is shown as it was then.
	Read time.Time `json:"read,omitzero"`
	// Err is why the last request failed; empty if it did not.
	Err     string `json:"error,omitempty"`
	passing bool   // the next answer clears Err
	looked  bool   // a whole look at a log or lock has ended, and some of it was read
	// Requests to the store so far. Interval is how often the leader is looked at.
	Requests uint64  `json:"requests"`
	Interval float64 `json:"interval_seconds"`
	// Silence is how long the store may be asked nothing. If Asked is longer ago, it does not answer.
	Silence float64 `json:"silence_seconds"`

	Log   *Log   `json:"log,omitempty"`
	Group *Group `json:"group,omitempty"`
	Lock  *Lock  `json:"lock,omitempty"`
}

// Seen reports whether some of it was read.
func (s *State) Seen() bool { return s.Log != nil || s.Group != nil || s.Lock != nil }

// become forgets what was there before, if something else is there now.
func (s *State) become(kind string) {
	if s.Kind != kind {
		s.Kind, s.Read, s.Log, s.Group, s.Lock, s.looked = kind, time.Time{}, nil, nil, nil, false
	}
}

// Looked reports whether a whole look at it has ended. Parts that fail are not waited for.
func (s *State) Looked() bool { return s.looked || s.Group != nil }

// Complete reports whether all of it was read once, perhaps except pins and past leaders.
func (s *State) Complete() bool {
	return s.Group != nil || s.Log != nil && s.Log.Complete || s.Lock != nil && s.Lock.Complete
}

// Lock is what is known of a place that has a lock and no log.
type Lock struct {
	survey.Lock
	// Complete says that the locks were read once.
	Complete bool `json:"complete"`
	// Terms are the leaderships, the newest first. Older ones may be missing.
	Terms []survey.Term `json:"terms"`
}

// Log is what is known of a log. LastAt is by the store's clock.
type Log struct {
	survey.Log

	// Complete says that all parts were read once.
	Complete bool `json:"complete"`
	// Read says which parts were. What is zero in another one is not known.
	Read Parts `json:"read"`

	// Terms are the leaderships, the newest first. Older ones may be missing.
	Terms     []survey.Term `json:"terms"`
	Manifests []Manifest    `json:"manifests"`
	Seals     []Seal        `json:"seals"`
	// Pins are some of the PinCount pins of the log.
	Pins     []Pin `json:"pins"`
	PinCount int   `json:"pin_count"`
	// Published is what the Delta table beside the log has; nil if there is none.
	Published *Published `json:"published,omitempty"`
	// PublishedErr is why it was not read. That does not count as a failure of the log.
	PublishedErr string `json:"published_error,omitempty"`
	// Rates are the numbers of records at some times, the oldest first.
	Rates []Sample `json:"samples"`
}

// Parts of a log, and whether each was read once.
type Parts struct {
	Leader    bool `json:"leader"`
	Manifest  bool `json:"manifest"`
	Tail      bool `json:"tail"`
	Compactor bool `json:"compactor"`
	// Pins were listed. PinVersions: also all pins that there were then were read. Later ones may not be.
	Pins        bool `json:"pins"`
	PinVersions bool `json:"pin_versions"`
}

// Published is what the newest version of a Delta table says of a log.
type Published struct {
	Version int64 `json:"version"`
	// Edits of the log that the table has. It may have some that are not folded.
	Edits uint64 `json:"edits"`
	// At is when the last of them was published, by the publisher's clock.
	At time.Time `json:"at,omitzero"`
	// Gone: the log was taken out of the table.
	Gone bool `json:"unpublished,omitempty"`
}

// Manifest is a version that was seen.
type Manifest struct {
	Version uint64    `json:"version"`
	Written time.Time `json:"written"`
	// By says which role has written it, if that is known: "writer", "compactor".
	By     string         `json:"by"`
	Epoch  uint64         `json:"epoch"`
	Floor  fence.Position `json:"floor"`
	Noted  fence.Position `json:"noted"`
	Offset uint64         `json:"offset"`
	// Missed versions lie between this one and the one seen before.
	Missed uint64 `json:"missed,omitempty"`
}

// Seal ends an epoch.
type Seal struct {
	Position fence.Position `json:"position"`
	Next     uint64         `json:"next"`
	// Offset is known when the seal is folded.
	Offset uint64 `json:"offset,omitempty"`
	Folded bool   `json:"folded"`
}

// Pin is a hold on a version.
type Pin struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Holder  string    `json:"holder"`
	Version uint64    `json:"version"`
	Created time.Time `json:"created"`
	Renewed time.Time `json:"renewed"`
	TTL     float64   `json:"ttl_seconds"`
	Expired bool      `json:"expired"`
}

// Sample is the number of records at a time.
type Sample struct {
	At      time.Time `json:"at"`
	Records uint64    `json:"records"`
}

// Group is what is known of a group.
type Group struct {
	survey.Group
	// Moves are changes of owners that were seen, the newest first.
	Moves []Move `json:"moves"`
}

// Move is a change of owners.
type Move struct {
	At time.Time `json:"at"`
	// Partitions that moved From one member To another; an empty name is nobody.
	Partitions int    `json:"partitions"`
	From       string `json:"from"`
	To         string `json:"to"`
	Assignment uint64 `json:"assignment"`
}
