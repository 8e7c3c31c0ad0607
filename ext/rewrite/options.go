package rewrite

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/sink"
)

// Options of [New]. The zero value works, and so does nil.
type Options struct {
	// Target is how many bytes the files of one rewrite have together at most; default 128 MiB.
	// A file of half of it is large enough, and stays as it is.
	Target int64
	// MinFiles is how many files of about the same size wait before they are merged; default
	// 8, at least 2. Files are about the same size if they differ by less than this factor.
	// Fewer are merged if they have half of Target together.
	MinFiles int
	// MaxFiles is how many files one rewrite replaces at most; default 32, at most 40. Their
	// names take 22 bytes each of the new file's Meta.
	MaxFiles int
	// Group returns a text for each file: only files with the same text are merged, such as
	// those of one partition. A file for which it returns false is left alone for now, such
	// as one that is not published yet. By default files of a group have the same Meta. So give
	// a function if each file's Meta is another, such as the offsets of its rows.
	Group func(manifest.File) (group string, ok bool)
	// Ext is the extension of new files; by default that of the first file of each rewrite.
	Ext string
	// Interval is how often Run looks for files to merge; default 1 min.
	Interval time.Duration
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger is silent by default.
	Logger *zap.Logger
	Hooks  Hooks
}

// Hooks are called by the goroutine that rewrites, which waits for them. Any may be nil.
type Hooks struct {
	// Rewritten is called after each rewrite that was committed.
	Rewritten func(Rewrite)
	// Passed: a pass has ended, a call of Once or a round of Run. It comes after the last call of
	// Rewritten.
	Passed func(Pass)
}

// Pass is the event of [Hooks].Passed.
type Pass struct {
	// Rewrites were committed.
	Rewrites []Rewrite
	// Err is nil if everything was merged that there was to merge.
	Err error
	// Took is the time of the pass.
	Took time.Duration
}

// Rewrite is what one rewrite has done.
type Rewrite struct {
	// File is the new one.
	File manifest.File
	// Replaced are the files that it replaces.
	Replaced []manifest.File
}

// mostFiles have room in a file's Meta with their names, beside that of the application.
const mostFiles = 40

// Validate returns an error that joins all faults of o; each is [ErrOptions].
func (o *Options) Validate() error {
	v := o.withDefaults()
	var bad []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			bad = append(bad, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	need(v.Target >= 2, "Target is %d bytes; it must be at least 2", v.Target)
	need(v.MinFiles >= 2, "MinFiles is %d; it must be at least 2, since one file cannot be merged", v.MinFiles)
	need(v.MaxFiles >= v.MinFiles && v.MaxFiles <= mostFiles, "MaxFiles is %d; it must be from MinFiles %d to %d", v.MaxFiles, v.MinFiles, mostFiles)
	need(v.Interval > 0, "Interval is %v; it must not be negative", v.Interval)
	return errors.Join(bad...)
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.Target = cmp.Or(v.Target, 128<<20)
	v.MinFiles = cmp.Or(v.MinFiles, 8)
	v.MaxFiles = cmp.Or(v.MaxFiles, max(32, v.MinFiles))
	v.Interval = cmp.Or(v.Interval, time.Minute)
	v.Clock = clock.Or(v.Clock)
	v.Logger = sink.Logger(v.Logger).Named("rewrite")
	if v.Group == nil {
		v.Group = byMeta
	}
	return v
}
