package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// ErrOptions: an option has a value that cannot work.
var ErrOptions = errors.New("agent: wrong options")

// Options of a server. Open is needed.
type Options struct {
	// Open opens the store at a URL.
	Open func(ctx context.Context, url string) (store.Store, error)
	// Logs are the URLs that clients may name; none: any.
	Logs []string
	// Hosts are the values of the header Host that are served; none: any. A browser that was led to this machine by a
	// foreign name (DNS rebinding) names that one.
	Hosts []string
	// Token returns the bearer token that each request must have. nil: none is needed.
	Token func() (string, error)
	// Streams is how many requests are served at once, default 256.
	Streams int
	// MessageBytes is how large a message may be, default 32 MiB.
	MessageBytes int
	// StreamBytes is what a session sends before it is acknowledged, default 64 MiB.
	StreamBytes int64
	// Leader and Writer are the options of each session; their MaxBytes is StreamBytes.
	Leader leader.Options
	Writer writer.Options
	// Init describes the log at a URL if it does not exist yet; nil: the defaults.
	Init func(url string) *manifest.InitOptions
	// Announce is what the locks say of this agent, so that readers find [Server.Readers], and Commit finds the agent. Each
	// log's lock has a Token of its own.
	Announce push.Announcement
	// Readers is how many readers are told at once, default 4096.
	Readers int
	// Upload makes a Parquet file of this machine one of the table, which the writer has not committed yet, for Commit. Set it
	// only where all who may connect may read what this process may. nil: Commit takes no paths.
	Upload func(ctx context.Context, st store.Store, w *writer.Writer, path string, values map[string]string) (manifest.File, error)
	// Clock is the machine's by default.
	Clock clock.Clock
	// Logger is silent by default.
	Logger *zap.Logger
}

// Validate returns all that is wrong with the options, as New does. Each fault is [ErrOptions].
func (o *Options) Validate() error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, slices.Insert(args, 0, any(ErrOptions))...))
	}
	if o == nil || o.Open == nil {
		fault("Open is nil: pass store.Open, or a function that calls it")
	}
	if o != nil {
		if o.Readers < 0 || o.Streams < 0 || o.MessageBytes < 0 || o.StreamBytes < 0 {
			fault("Streams %d, Readers %d, MessageBytes %d and StreamBytes %d must not be negative", o.Streams, o.Readers, o.MessageBytes, o.StreamBytes)
		}
		if err := o.Leader.Validate(); err != nil {
			fault("Leader: %w", err)
		}
		if err := o.Writer.Validate(); err != nil {
			fault("Writer: %w", err)
		}
	}
	return errors.Join(faults...)
}

func (o *Options) withDefaults() Options {
	v := *o
	v.Streams = cmp.Or(v.Streams, 256)
	v.Readers = cmp.Or(v.Readers, 4096)
	v.MessageBytes = cmp.Or(v.MessageBytes, 32<<20)
	v.StreamBytes = cmp.Or(v.StreamBytes, 64<<20)
	v.Writer.MaxBytes = v.StreamBytes
	v.Clock = clock.Or(v.Clock)
	v.Logger = sink.Logger(v.Logger)
	return v
}
