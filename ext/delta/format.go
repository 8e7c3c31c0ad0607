package delta

import (
	"context"
	"iter"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// Format writes tables in one way, as Delta Lake does. One publisher can write several: what it does before it
// writes is the same for all.
type Format interface {
	// Name is the format's: letters. Pins have it in their names.
	Name() string
	// Check returns an error if the format has no place for a file, for the schema of the table with it, or for a column by
	// which files are partitioned. It wraps [ErrSchema], names the column, and says what to do.
	Check(s *Schema, by []string, f *Footer) error
	// Open returns the table at a place. It sends no request.
	Open(p Place) (Table, error)
}

// Place is where a table is.
type Place struct {
	// Root is where the files of the logs are, and the table beside them.
	Root   store.Store
	Settle *store.SettleOptions
	Clock  clock.Clock
	// Foreign tells of what another program has left.
	Foreign func(key, what string)
	// Failed tells of errors after which the caller goes on.
	Failed func(error)
}

// Table is a table of one format. Its versions are numbered objects, each created only if it is absent. It is for
// one goroutine.
type Table interface {
	// Load returns the newest state. The listing that it uses begins after the call: a version that was created
	// before is in it. Known is an earlier state, which Load may change and return, or nil. If whole, it lists
	// everything, so that Expire needs no listing.
	Load(ctx context.Context, known State, whole bool) (State, error)
	// Newer reports whether there may be a version after the one that is known. It costs a request at most.
	Newer(ctx context.Context, known State) (bool, error)
	// Create creates the version after a state, and makes the state that. It returns false if somebody else was
	// quicker. True does not say that the version is in the table: a load that begins later must show it.
	Create(ctx context.Context, s State, c *Change) (bool, error)
	// Owes reports whether the newest version needs another object, such as a checkpoint or a hint, and how
	// long that can wait. Settle writes it, and reports whether older objects may be let go of now.
	Owes(s State) (owes bool, wait time.Duration)
	Settle(ctx context.Context, s State) (done bool, err error)
	// Expire finds the oldest version within the retention. It returns the manifest that this version names for each
	// log, and a function that deletes what only older versions need. Without an error and without a map there is
	// nothing to let go of yet.
	Expire(ctx context.Context, s State) (needed map[fence.ID]uint64, clean func(context.Context) error, err error)
	// First names the object of the first version, for errors.
	First() string
}

// State is a version of a table.
type State interface {
	// Version is -1 before the first.
	Version() int64
	// Meta is nil before the first version. Nobody changes it.
	Meta() *Meta
	// Len is how many files are active.
	Len() int
	// Owner returns the log of an active file, or false.
	Owner(path string) (log fence.ID, active bool)
	// Files are the active files with their logs, in any order.
	Files() iter.Seq2[string, fence.ID]
	// Source returns how many edits of a log are in the table, and what the table holds of it. It returns false
	// for a log that the table does not know.
	Source(log fence.ID) (edits uint64, h Hold, known bool)
	// Holds are those of all logs, also of those that were unpublished.
	Holds() map[fence.ID]Hold
}

// Meta is what a table says of itself.
type Meta struct {
	// ID is random.
	ID   string
	Name string
	// Schema has the columns by which files are partitioned too.
	Schema *Schema
	// Partition are the names of those.
	Partition []string
	Retention time.Duration
}

// types returns the types of the columns by which the table is partitioned.
func (m *Meta) types() map[string]string {
	columns := map[string]string{}
	for _, name := range m.Partition {
		if c := m.Schema.field(name); c != nil {
			columns[name] = c.Type.Name
		}
	}
	return columns
}

// Change is what a version changes.
type Change struct {
	// Operation is "create", "schema", "publish" or "unpublish".
	Operation string
	// Meta is the table's if it changes, or nil.
	Meta *Meta
	// Parts are the changes of logs.
	Parts []Part
}

// Part is what a version does for one log.
type Part struct {
	Log fence.ID
	// Name is where the log is.
	Name string
	// Edits is how many are in the table after it.
	Edits uint64
	// Offset is how many records of the log come before the last of them, as far as is known.
	Offset uint64
	Hold   Hold
	Add    []Added
	Remove []Removed
}

// Added is a file that a version adds.
type Added struct {
	Path string
	// File is what the log says of it.
	File manifest.File
	// Partition has a value for each column by which the table is partitioned; nil is null.
	Partition map[string]*string
	Footer    *Footer
	// Rewrite: the rows were in the table before.
	Rewrite bool
}

// Removed is a file that a version removes. Rewrite: its rows stay in the table.
type Removed struct {
	Path    string
	Rewrite bool
}

// Hold is where a source was when it was published.
type Hold struct {
	// Manifest is the version of the log's manifest that is pinned for this version.
	Manifest uint64 `json:"manifest"`
	// Held is when that pin was taken, in milliseconds of Unix time. It only decides when
	// the next pin is taken.
	Held int64 `json:"held,omitempty"`
	// Epoch, Slot and Opened are the place up to which the log is published.
	Epoch  uint64   `json:"epoch"`
	Slot   uint64   `json:"slot"`
	Opened fence.ID `json:"opened"`
	// Gone: the source was unpublished.
	Gone bool `json:"unpublished,omitempty"`
}

func (h Hold) place() reader.Place {
	return reader.Place{Slot: fence.Position{Epoch: fence.Epoch(h.Epoch), Seq: h.Slot}, Opened: h.Opened}
}

// slack is how much longer than the retention something must be old. Most stores tell times in
// whole seconds.
const slack = 5 * time.Second

// inside reports whether a version is still within the retention, by its successor: a version
// can be read until the retention has passed since the next one came.
func inside(successor store.Info, retention time.Duration) bool {
	age, known := successor.Age()
	return !known || age < retention+slack
}

// Oldest returns the oldest version within the retention, of those that a listing has shown. High is the newest.
func Oldest(listed map[int64]store.Info, high int64, retention time.Duration) int64 {
	first := high
	for v := first - 1; v >= 0; v-- {
		// guard:delta-inside. A version is kept until the retention has passed since the next
		// version was created, by the store's time.
		//
		//mutant:replace listed[v+1], retention => listed[v], retention
		if !inside(listed[v+1], retention) {
			break
		}
		if _, ok := listed[v]; !ok {
			break
		}
		first = v
	}
	return first
}
