package compactor

import (
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// Options of a compactor. The zero value works.
type Options struct {
	// Interval is how often Run looks for work, default 10 s.
	Interval time.Duration
	// MinObjects is how many unfolded objects Run waits for before it folds,
	// default 64, unless they have waited for MaxAge, default one minute. Once
	// folds whatever there is.
	MinObjects int
	MaxAge     time.Duration
	// SegmentBytes is how large a segment may grow, default 256 MiB.
	SegmentBytes int64
	// Levels is how often a record is written again by merging, at most, default
	// 3: with its fold, write amplification is at most 1 + Levels. FanIn is how
	// much larger segments are from level to level, default 64, up to half of
	// SegmentBytes, where they stay as they are. Fewer than FanIn wait at each
	// level; at the last, which begins with the smallest, they may be more, the more
	// the fewer levels there are.
	Levels, FanIn int
	// Parallel is how many log objects are read at once, default 16, at most 4096. Segments are
	// read and written several requests of some megabytes at a time.
	Parallel int
	// RequestsPerSecond and BytesPerSecond bound the use of the store: what folding,
	// merging and pruning read and write, roughly, on average over a few seconds.
	// The election's heartbeats are not delayed. 0 is no limit.
	RequestsPerSecond int
	BytesPerSecond    int64
	// Retain bounds the history; see [Retain]. The zero value keeps all.
	Retain Retain
	// KeepVersions is how many of the manifests that were replaced are kept, beyond
	// what the grace period asks for, with all that they name: so long one can go
	// back. The zero value keeps none.
	KeepVersions KeepVersions
	// NoCompress stores segments as they are; Zstandard is the default.
	NoCompress bool
	// Leader configures Run's own election, under compactor-lock/. Its Prune is not
	// used: KeepLocks is for both elections.
	Leader *leader.Options
	// KeepLocks is how much history of leaderships is kept; see leader.Prune.
	KeepLocks *leader.PruneOptions
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger is silent by default.
	Logger *zap.Logger
	// Progress is called after each object folded or merged, and after each batch
	// deleted, from the compactor's goroutine. May be nil.
	Progress func(Report)
}

// Retain says what is given up of the history, oldest first: segments that lie
// wholly beyond any of the bounds that are set. What is given up is never
// promised again. Nothing that is not folded is given up.
type Retain struct {
	// Age is measured from the writer's time of a segment's newest record to the
	// store's clock, or this machine's if the store does not tell the time. A record
	// from a writer whose clock was ahead stays longer, and so does what is behind it.
	Age time.Duration
	// Records and Bytes, as stored in segments, are how many are kept at least.
	Records uint64
	Bytes   int64
}

// KeepVersions says which manifests stay: the Count newest, and those that were the
// newest within Age.
type KeepVersions struct {
	Count int
	Age   time.Duration
}

// maxParallel bounds Options.Parallel: each takes a connection and up to 256 KiB.
const maxParallel = 4096

// maxLevels bounds Options.Levels: sizes that halve from level to level end there.
const maxLevels = 64

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.Interval == 0 {
		v.Interval = 10 * time.Second
	}
	if v.MinObjects == 0 {
		v.MinObjects = 64
	}
	if v.MaxAge == 0 {
		v.MaxAge = time.Minute
	}
	if v.SegmentBytes == 0 {
		v.SegmentBytes = 256 << 20
	}
	if v.FanIn == 0 {
		v.FanIn = 64
	}
	if v.Levels == 0 {
		v.Levels = 3
	}
	if v.Parallel == 0 {
		v.Parallel = 16
	}
	if v.Logger == nil {
		v.Logger = zap.NewNop()
	}
	v.Clock = clock.Or(v.Clock)
	switch {
	case v.Interval < 0 || v.MaxAge < 0:
		return v, fmt.Errorf("compactor: Interval is %v and MaxAge is %v; neither may be negative", v.Interval, v.MaxAge)
	case v.MinObjects < 1:
		return v, fmt.Errorf("compactor: MinObjects is %d; it must be at least 1", v.MinObjects)
	case v.SegmentBytes < 1:
		return v, fmt.Errorf("compactor: SegmentBytes is %d; it must be at least 1", v.SegmentBytes)
	case v.Parallel < 1 || v.Parallel > maxParallel:
		return v, fmt.Errorf("compactor: Parallel is %d; it must be from 1 to %d", v.Parallel, maxParallel)
	case v.RequestsPerSecond < 0 || v.BytesPerSecond < 0:
		return v, fmt.Errorf("compactor: RequestsPerSecond is %d and BytesPerSecond is %d; neither may be negative", v.RequestsPerSecond, v.BytesPerSecond)
	case v.Retain.Age < 0 || v.Retain.Bytes < 0:
		return v, fmt.Errorf("compactor: Retain.Age is %v and Retain.Bytes is %d; neither may be negative", v.Retain.Age, v.Retain.Bytes)
	case v.KeepVersions.Count < 0 || v.KeepVersions.Age < 0:
		return v, fmt.Errorf("compactor: KeepVersions.Count is %d and KeepVersions.Age is %v; neither may be negative", v.KeepVersions.Count, v.KeepVersions.Age)
	case v.FanIn < 2:
		return v, fmt.Errorf("compactor: FanIn is %d; it must be at least 2", v.FanIn)
	case v.Levels < 1 || v.Levels > maxLevels:
		return v, fmt.Errorf("compactor: Levels is %d; it must be from 1 to %d", v.Levels, maxLevels)
	}
	return v, nil
}

// segmentBytes is how large a segment may grow. It goes as a whole, so of what is
// kept for a time none may be more than a quarter.
func (o *Options) segmentBytes() int64 {
	if o.Retain.Bytes > 0 {
		return min(o.SegmentBytes, max(o.Retain.Bytes/4, 1))
	}
	return o.SegmentBytes
}

// levels is the rule of merging.
func (o *Options) levels() levels {
	l := levels{full: (o.segmentBytes() + 1) / 2, fanIn: o.FanIn, n: o.Levels, span: o.Retain.Age / 4}
	if o.Retain.Records > 0 {
		l.records = max(o.Retain.Records/4, 1)
	}
	return l
}
