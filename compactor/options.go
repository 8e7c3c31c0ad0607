package compactor

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// Options of [New]. The zero value works, and so does nil.
type Options struct {
	// Token is the right to compact, if something other than Fencepost elects
	// the compactor: an etcd revision, for example. A [Compactor] with a Token holds no
	// election and prunes no locks. The zero Token elects: Run, Once and Truncate wait
	// for the lock under compactor-lock/, and free it when they return.
	Token fence.Token
	// Interval is how often Run checks for work; default 10 s.
	Interval time.Duration
	// IdleInterval is how often Run checks a log in which nothing happens. After each check that
	// finds nothing to do and nothing that waits, Run waits twice as long, up to this. Default
	// Interval.
	IdleInterval time.Duration
	// MinObjects is how many unfolded objects Run waits for before it folds; default 64.
	// It folds fewer if one has waited for MaxAge; default 1 min. Once folds any number.
	MinObjects int
	MaxAge     time.Duration
	// SegmentBytes is how large a segment may grow, in bytes; default 256 MiB.
	SegmentBytes int64
	// Levels is how often merging writes a record again, at most; default 3. With the
	// fold, a record is written at most 1 + Levels times.
	Levels int
	// FanIn is the size ratio between levels; default 64. Fewer than FanIn segments wait
	// at each level, except at the lowest: the fewer levels there are, the more wait
	// there. A segment of half of SegmentBytes is not merged any more.
	FanIn int
	// Concurrency is how many log objects are read at once, at most 4096; default 16. Each
	// takes a connection and up to 256 KiB of memory.
	Concurrency int
	// RequestsPerSecond and BytesPerSecond bound what folding, merging and pruning ask
	// of the store: roughly, on average over a few seconds. Heartbeats of the election
	// are not delayed. 0 is no bound.
	RequestsPerSecond int
	BytesPerSecond    int64
	// Budget, if not nil, also bounds what this compactor and others do together.
	Budget *Budget
	// Retain bounds the history. The zero value keeps all of it.
	Retain Retain
	// KeepVersions is how many older versions of the manifest are kept, with all that
	// they name, so that they can still be pinned and read. KeepVersionsFor keeps those
	// that were the newest at any time within so long. 0 keeps none beyond the grace
	// period.
	// While one of them is set, no leader prunes manifests in place of a compactor that does
	// not work.
	KeepVersions    int
	KeepVersionsFor time.Duration
	// NoCompress stores segments without compression; Zstandard is the default.
	NoCompress bool
	// Leader configures the compactors' own election; it is not used with a Token. Its
	// Prune and NoPrune are also for the locks of the log's leaders: the compactor prunes
	// both.
	Leader *leader.Options
	// Files is the store for the files of the table, if the log keeps them in a second one: see
	// manifest.InitOptions.Files. Without it such a log is not compacted.
	Files store.Store
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger also serves the election if Leader has no Logger. The names of its lines
	// begin with "compactor". Default: no logging.
	Logger *zap.Logger
	Hooks  Hooks
}

// Hooks are called by the goroutine that compacts, which waits for them: they must not
// call the [Compactor]. So all calls end before Once or Run returns. Any may be nil.
type Hooks struct {
	// Progress is called with the report so far: after each object that was folded,
	// after each segment that was merged, and after each batch that was deleted; and at
	// the end of each pass with its final report, also if it found nothing to do or
	// failed. Each pass, a call of Once or a round of Run, counts from 0. During a fold,
	// Segments and Floor are those before it. If a fold or a merge fails, what it has
	// counted is not in later reports.
	Progress func(Report)
	// Folded: objects of the log have become segments.
	Folded func(Fold)
	// Passed: a pass has ended, a call of Once or a round of Run. It comes after the last call
	// of Progress.
	Passed func(Pass)
}

// Fold is the event of [Hooks].Folded.
type Fold struct {
	Epoch fence.Epoch
	// Objects that were folded, with the Records and Bytes in them.
	Objects, Records uint64
	Bytes            int64
	// Floor is where the log now begins that is not folded.
	Floor fence.Position
	// Took is the time from the first object read to the new manifest.
	Took time.Duration
}

// Pass is the event of [Hooks].Passed.
type Pass struct {
	Epoch  fence.Epoch
	Report Report
	// Err is nil if everything was done that there was to do.
	Err error
	// Took is the time of the pass.
	Took time.Duration
}

// Retain bounds the history: segments that lie wholly beyond any bound that is set are
// given up, the oldest first. Records that were given up never come back. Records that
// are not folded are never given up. A bound of 0 is none.
type Retain struct {
	// Age is how old a record may become. A segment's age counts from the writer's time
	// of its newest record, to the store's time; or to this machine's if the store does
	// not tell its own. A record from a writer whose clock was ahead stays longer, and so
	// does every record after it.
	Age time.Duration
	// Records is how many records are kept at least.
	Records uint64
	// Bytes is how many bytes of segments are kept at least, as stored.
	Bytes int64
}

const (
	maxConcurrency = 4096
	// maxLevels is the largest number of levels that makes sense: an int64 cannot be
	// halved more often.
	maxLevels = 64
)

// Validate returns an error that joins all faults of o; each is [ErrOptions]. [New]
// calls it.
func (o *Options) Validate() error {
	v := o.withDefaults()
	var bad []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	need(v.Interval > 0, "Interval is %v; it must not be negative", v.Interval)
	need(v.IdleInterval >= v.Interval, "IdleInterval is %v; it must be at least Interval, which is %v", v.IdleInterval, v.Interval)
	need(v.MinObjects > 0, "MinObjects is %d; it must be at least 1", v.MinObjects)
	need(v.MaxAge > 0, "MaxAge is %v; it must not be negative", v.MaxAge)
	need(v.SegmentBytes > 0, "SegmentBytes is %d; it must be at least 1", v.SegmentBytes)
	need(v.Levels >= 1 && v.Levels <= maxLevels, "Levels is %d; it must be from 1 to %d", v.Levels, maxLevels)
	need(v.FanIn >= 2, "FanIn is %d; it must be at least 2", v.FanIn)
	need(v.Concurrency >= 1 && v.Concurrency <= maxConcurrency, "Concurrency is %d; it must be from 1 to %d", v.Concurrency, maxConcurrency)
	need(v.RequestsPerSecond >= 0, "RequestsPerSecond is %d; it must not be negative", v.RequestsPerSecond)
	need(v.BytesPerSecond >= 0, "BytesPerSecond is %d; it must not be negative", v.BytesPerSecond)
	need(v.Retain.Age >= 0, "Retain.Age is %v; it must not be negative", v.Retain.Age)
	need(v.Retain.Bytes >= 0, "Retain.Bytes is %d; it must not be negative", v.Retain.Bytes)
	need(v.KeepVersions >= 0, "KeepVersions is %d; it must not be negative", v.KeepVersions)
	need(v.KeepVersionsFor >= 0, "KeepVersionsFor is %v; it must not be negative", v.KeepVersionsFor)
	err := v.Leader.Validate()
	need(err == nil, "Leader: %w", err)
	err = v.Settle.Validate()
	need(err == nil, "Settle: %w", err)
	return errors.Join(bad...)
}

// withDefaults returns a copy of o with the defaults filled in.
func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Interval = cmp.Or(v.Interval, 10*time.Second)
	v.IdleInterval = cmp.Or(v.IdleInterval, v.Interval)
	v.MinObjects = cmp.Or(v.MinObjects, 64)
	v.MaxAge = cmp.Or(v.MaxAge, time.Minute)
	v.SegmentBytes = cmp.Or(v.SegmentBytes, 256<<20)
	v.Levels = cmp.Or(v.Levels, 3)
	v.FanIn = cmp.Or(v.FanIn, 64)
	v.Concurrency = cmp.Or(v.Concurrency, 16)
	v.Leader = cmp.Or(v.Leader, &leader.Options{})
	v.Logger = sink.Logger(v.Logger).Named("compactor")
	v.Clock = clock.Or(v.Clock)
	return v
}

// segmentBytes is how large a segment may grow. Retention gives up whole segments, so
// with a bound on bytes none is larger than a quarter of it.
func (o *Options) segmentBytes() int64 {
	if o.Retain.Bytes > 0 {
		return min(o.SegmentBytes, max(o.Retain.Bytes/4, 1))
	}
	return o.SegmentBytes
}

// levels is the rule of merging.
func (o *Options) levels() levels {
	l := levels{full: o.segmentBytes() - o.segmentBytes()/2, fanIn: o.FanIn, n: o.Levels, span: o.Retain.Age / 4}
	if o.Retain.Records > 0 {
		l.records = max(o.Retain.Records/4, 1)
	}
	return l
}
