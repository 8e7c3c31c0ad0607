package reader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Options of a reader. The zero value works, and so does nil.
type Options struct {
	// PollMax is the longest pause between two looks at the tail; default 1 s. The pause
	// is an eighth of the time since the last record, from 10 ms on, or from PollMax if
	// that is less.
	PollMax time.Duration
	// Concurrency is how many objects of the chain are fetched at once; default 64, at most
	// 4096. Of each, up to 256 KiB are held besides what Prefetch allows, and up to as much
	// again for objects that wait for their turn.
	Concurrency int
	// Prefetch is how many bytes are fetched ahead, and again how many of them are kept
	// decompressed; default 64 MiB. A single larger object exceeds it. Up to as much
	// again comes after a seal, and is held back until a LIST confirms the seal. So a larger
	// Prefetch saves LISTs where leaderships are many and objects are large.
	//
	// While a reader waits for the next object of the chain, it asks for up to Prefetch bytes
	// more. They take no memory of the reader before there is room: HTTP/1.1 leaves them with the
	// kernel and the store. HTTP/2 buffers them, up to 4 MiB for each request. Over HTTP/1.1 such
	// an answer keeps its connection. Allow the client more than Concurrency connections to a host
	// (MaxConnsPerHost), or the next object may wait up to 5 s for one.
	Prefetch int64
	// Push is a source of objects that a leader pushes, for loops that follow the log. It yields the objects of the log
	// from slot at on, each as it is in the store, as soon as it is acknowledged: they are in the reader's hands without a
	// request. The reader keeps them. Something empty says that no more is acknowledged yet.
	//
	// A reader checks what is pushed as what it reads. For 10 s after each yield it does not look at the
	// tail, so a source says something every 2 s or so while it is sure to miss nothing. What is not
	// pushed, or does not fit, the reader finds as without a source. A source ends when it may have
	// missed something, and with ctx. Then it is called again, at most once in PollMax; at a new epoch at once.
	//
	// What is pushed must be in the log. If it is not, the reader finds that out when it looks next, after its records
	// were delivered, and ends with [ErrCorrupt]. So take it only from who may write the log.
	Push func(ctx context.Context, at fence.Position) iter.Seq[[]byte]
	// Files is the store for the files of the table, if the log keeps them in a second one: see
	// manifest.InitOptions.Files. Only [Snapshot.Open] needs it.
	Files store.Store
	// Settle tunes retries.
	Settle *store.SettleOptions
	// Clock is the machine's by default.
	Clock clock.Clock
	Hooks Hooks
}

const (
	pollMin         = 10 * time.Millisecond
	defaultPollMax  = time.Second
	defaultPrefetch = 64 << 20
	maxConcurrency  = 4096
	defaultTTL      = time.Minute
)

// Validate returns all that is wrong with the options, as [Open] does. Each fault is
// [ErrOptions].
func (o *Options) Validate() error {
	v := o.withDefaults()
	var faults faults
	faults.need(v.PollMax > 0, "PollMax %v must be positive", v.PollMax)
	faults.need(v.Concurrency >= 0 && v.Concurrency <= maxConcurrency, "Concurrency %d must be 0 (for the default) to %d", v.Concurrency, maxConcurrency)
	faults.need(v.Prefetch > 0, "Prefetch of %d bytes must be positive", v.Prefetch)
	err := v.Settle.Validate()
	faults.need(err == nil, "Settle: %w", err)
	return errors.Join(faults...)
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.PollMax = cmp.Or(v.PollMax, defaultPollMax)
	v.Prefetch = cmp.Or(v.Prefetch, defaultPrefetch)
	v.Clock = clock.Or(v.Clock)
	return v
}

// SnapshotOptions describe a snapshot. The zero value works, and so does nil.
type SnapshotOptions struct {
	// Version takes the snapshot at the floor of that version of the manifest: it has the
	// records and edits that were folded then. The version must be above the prune mark, or
	// pinned. If only a pin keeps it, the snapshot lasts as long as that pin. By default the
	// snapshot is of the end of the log at the time of the call.
	Version uint64
	// TTL is how long the snapshot's pin holds without a renewal, for instance because
	// this process has crashed; default 1 min, at least [manifest.MinPinTTL]. A renewal
	// is one PUT, each third of TTL.
	TTL time.Duration
	// Name is written into the pin, for people.
	Name string
	// Unpinned makes no pin: the snapshot writes nothing, and what it refers to may be
	// deleted after the log's grace period.
	Unpinned bool
}

// Validate returns all that is wrong with the options, as [Reader.Snapshot] does. Each
// fault is [ErrOptions].
func (o *SnapshotOptions) Validate() error {
	v := o.withDefaults()
	var faults faults
	faults.need(v.TTL >= manifest.MinPinTTL, "TTL %v is too short: it must be at least %v", v.TTL, manifest.MinPinTTL)
	return errors.Join(faults...)
}

func (o *SnapshotOptions) withDefaults() SnapshotOptions {
	v := *cmp.Or(o, &SnapshotOptions{})
	v.TTL = cmp.Or(v.TTL, defaultTTL)
	return v
}

// faults are what is wrong with some options.
type faults []error

func (f *faults) need(ok bool, format string, args ...any) {
	if !ok {
		*f = append(*f, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
	}
}
