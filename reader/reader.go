package reader

import (
	"context"
	"fmt"
	"iter"
	"math"
	"time"

	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// Reader reads one log. It is safe for concurrent use and need not be closed.
type Reader struct {
	log   *state.Log
	chain chain.Source
	segs  segment.Source
	opts  Options
}

// Record is one record of the log.
type Record struct {
	Offset uint64
	// Value is the caller's to keep and to change. It keeps alive what it was fetched
	// with, some 4 MiB: of many records, keep clones.
	Value []byte
	// Time is the writer's time of day. Of a compacted record it is that of the latest
	// record in the same block, of some 1 MiB.
	Time time.Time
}

// Open reads the format of the log in st: one GET. A store that never answers is tried for four
// minutes, by the defaults of Options.Settle. To give up the first contact earlier, let ctx end.
//
// Errors: [ErrOptions], [ErrNotInitialized], [ErrFormat], [ErrCorrupt], manifest.ErrFiles, or the
// store's. If ctx ends, the error has what the store has answered last.
func Open(ctx context.Context, st store.Store, opts *Options) (*Reader, error) {
	if store.IsNil(st) {
		return nil, fmt.Errorf("%w: the store is nil", ErrOptions)
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	o := opts.withDefaults()
	log, err := state.Open(ctx, st, &state.Options{Files: o.Files, Settle: o.Settle, Clock: o.Clock})
	if err != nil {
		return nil, err
	}
	f := log.Format()
	return &Reader{
		log:   log,
		chain: chain.Source{Store: st, Log: f.Log, Limits: f.Limits, Settle: o.Settle, Ahead: o.Concurrency, Budget: o.Prefetch, Over: o.Prefetch},
		segs:  segment.Source{Store: st, Log: f.Log, Limits: f.Limits, Settle: o.Settle, Budget: o.Prefetch},
		opts:  o,
	}, nil
}

// Oldest stands for the offset of the oldest record that is left when the first record
// is delivered.
const Oldest uint64 = math.MaxUint64

// Read yields the records from offset from to the end of the log. Every record that was
// acknowledged before the loop begins is among them. An error ends the sequence:
// [ErrGone], [ErrCorrupt], [ErrFormat], the store's or ctx's.
//
// While the caller works on a record, others are fetched ahead, up to Options.Prefetch.
func (r *Reader) Read(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) { r.stream(from).records(ctx, yield) }
}

// Tail yields the records from offset from on, and then each new one as it comes. An
// offset beyond the end waits until the log reaches it. The sequence ends when ctx does,
// with its cause, or with an error as of [Reader.Read].
func (r *Reader) Tail(ctx context.Context, from uint64) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		s := r.stream(from)
		s.tail = true
		s.records(ctx, yield)
	}
}
