package reader

import (
	"context"
	"iter"
	"math"
	"time"

	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Reader reads one log. It is safe for concurrent use and holds nothing open.
type Reader struct {
	log   *state.Log
	chain chain.Source
	segs  segment.Source
	opts  Options
	wake  chan struct{}
}

// Record is one record of the log.
type Record struct {
	Offset uint64
	// Value is the reader's to keep and to change. It is not a copy: as long as it is
	// kept, so is what it was fetched with, some 4 MiB. Clone what is kept of many.
	Value []byte
	// Time is the wall clock of the writer, or of the latest record in the same
	// block once the record has been compacted.
	Time time.Time
}

// Open reads the format of the log in st. Errors: [ErrNotInitialized],
// [ErrFormat], [ErrCorrupt].
func Open(ctx context.Context, st store.Store, opts *Options) (*Reader, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	log, err := state.Open(ctx, st, &state.Options{Settle: o.Settle, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	f := log.Format()
	return &Reader{
		log:   log,
		chain: chain.Source{Store: st, Log: f.Log, Limits: f.Limits.Limits, Settle: o.Settle, Ahead: o.Ahead, Budget: o.Prefetch},
		segs:  segment.Source{Store: st, Log: f.Log, Limits: f.Limits.Limits, Settle: o.Settle, Budget: o.Prefetch},
		opts:  o,
		wake:  make(chan struct{}, 1),
	}, nil
}

// Format returns the log's format.
func (r *Reader) Format() manifest.Format { return r.log.Format() }

// Wake makes a tailing reader look at once, for whoever hears of a commit by
// another way. It does not block; of several tailing loops of one Reader it wakes
// one.
func (r *Reader) Wake() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Oldest is the offset of the first record that there is: in [Reader.Read] and
// [Reader.Tail] it stands for whatever that is when they begin.
const Oldest = math.MaxUint64

// Read yields the records from offset from up to the end of the log. Everything
// acknowledged before Read was called is there. An error ends the sequence:
// [ErrGone], [ErrCorrupt], [ErrFormat], the store's or ctx's.
//
// While the caller works on a record, others are fetched ahead, as far as
// Options.Prefetch goes.
func (r *Reader) Read(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) { r.cursor(from).records(ctx, yield) }
}

// Tail yields the records from offset from on and goes on as the log grows, until
// ctx ends; then its last error is ctx's. An offset beyond the end waits for the
// log to reach it. Errors are those of Read.
func (r *Reader) Tail(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		c := r.cursor(from)
		c.follow = true
		c.records(ctx, yield)
	}
}
