package writer

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/outage"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Writer appends to a log in one epoch. It is safe for concurrent use.
type Writer struct {
	log       *state.Log
	st        store.Store
	format    manifest.Format
	token     fence.Token
	opts      Options
	hedge     *store.Hedge         // nil if there are none
	outage    *outage.Log          // of requests for slots
	lists     *outage.Log          // of requests for manifests
	settle    *store.SettleOptions // of requests for slots
	recovered Recovered
	encoders  int // at once

	slots     context.Context //nolint:containedctx // of requests for slots: a caller's context only ends its wait
	abandon   context.CancelCauseFunc
	tasks     sync.WaitGroup // dispatcher, senders, checkpointer, uploads; those of an idle writer rest
	ending    sync.WaitGroup // what waits for all tasks, and calls Hooks.Ended
	opened    clock.Instant
	stopUntil func()
	closed    chan struct{} // closed with err
	finished  chan struct{} // closed when Close is through
	long      chan struct{} // gets one when the tail has become long
	reporting sync.Mutex    // held while hooks are called, in order

	mu      sync.Mutex
	changed sync.Cond // of everything below

	pace      pace
	editWaits bool   // for an empty batch
	waiting   *batch // takes what is appended, until a request is free
	// window holds the batches that were sent and are not acknowledged, in order.
	window   []*batch
	inFlight int
	encoding int            // of those in flight, the ones that are not encoded
	bytes    int            // payload in window
	last     *batch         // in the pipeline
	next     fence.Position // of the batch after it
	offset   uint64         // of the first record of that batch
	acked    frame.Point    // after the last batch that was acknowledged
	tail     tail           // since the last checkpoint
	life     life
	reports  []*batch // acknowledged, and the hook is not called yet
	reported []*batch // an array for reports to use again; guarded by reporting
	crew     *crew    // of the dispatcher; nil while none runs
	// checkpointing says that the checkpointer runs, or has ended for good.
	checkpointing bool

	marked atomic.Bool // the store for files is the log's
	// Only the checkpointer uses these.
	checkpoints checkpoints
	unfolded    uint64 // how many objects the last warning was about

	files     map[*FileWriter]struct{} // open
	completed map[string]manifest.File // the files that are complete and not added yet
	table     table                    // guarded by its own turn
	buffers   buffers                  // safe for concurrent use
}

// Recovered is where the history ended when the writer was opened.
type Recovered struct {
	// Epoch of this writer.
	Epoch fence.Epoch
	// Offset of the next record.
	Offset uint64
	// Cursor is the last one committed, empty if there is none.
	Cursor []byte
}

// start begins the goroutines of a writer. It adds a task, which Open ends when it has told the opening.
func start(log *state.Log, token fence.Token, begin frame.Point, opts Options, slots, lists *outage.Log) (*Writer, error) {
	updater, err := log.Updater(layout.Writer, token)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		log: log, st: log.Store(), format: log.Format(), token: token, opts: opts, hedge: opts.hedge(),
		outage: slots, lists: lists, settle: slots.Settle(opts.Settle),
		recovered: Recovered{Epoch: token.Epoch(), Offset: begin.Offset, Cursor: bytes.Clone(begin.Cursor)},
		closed:    make(chan struct{}), finished: make(chan struct{}), long: make(chan struct{}, 1), stopUntil: func() {},
		waiting: newBatch(), next: begin.Position, offset: begin.Offset, acked: begin, pace: newPace(&opts),
		encoders: min(runtime.GOMAXPROCS(0), frame.MaxPacking),
		files:    map[*FileWriter]struct{}{}, completed: map[string]manifest.File{}, table: newTable(begin), opened: opts.Clock.Now(),
	}
	w.tasks.Add(1)
	w.last = &batch{after: begin, encoded: closed}
	w.waiting.outage, w.waiting.clock = w.outage, opts.Clock
	w.changed.L = &w.mu
	w.slots, w.abandon = context.WithCancelCause(context.Background())
	w.checkpointing, w.checkpoints.pruning = true, pruning{Writer: w, updater: updater}
	w.tasks.Go(w.checkpointFirst)
	return w, nil
}

// Until ends the writer when ctx ends: then nothing more is sent, and what is in flight is reported as
// [ErrUnknown]. Call it right after [Open], with the context of the leader's term. The writer is safe
// without it. With it, a deposed leader stops by itself.
func (w *Writer) Until(ctx context.Context) {
	stop := w.abortWith(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.stopUntil
	w.stopUntil = func() { before(); stop() }
}

// abortWith aborts when ctx ends. The function returned ends that, and waits for an abort
// that has begun.
func (w *Writer) abortWith(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		w.abort(fmt.Errorf("%w: %w", ErrClosed, context.Cause(ctx)))
	})
	return func() {
		if !cancel() {
			<-done
		}
	}
}

// Recovered returns where the history ended when the writer was opened.
func (w *Writer) Recovered() Recovered { return w.recovered }

// Epoch returns the writer's epoch.
func (w *Writer) Epoch() fence.Epoch { return w.token.Epoch() }

// Format returns the log's format, with its limits.
func (w *Writer) Format() manifest.Format { return w.format }

// Err returns why the writer takes no appends any more, or nil: [ErrFenced], [ErrClosed], or
// the store's error. It does not change once it is set, with one exception: ErrFenced
// replaces another reason if the writer meets a successor while it finds out the outcome of
// what is in flight.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life.err
}

// Done is closed when the writer takes no appends any more; see [Writer.Err].
//
// A writer learns that it was fenced from the answer to what it sends: an append, or the checkpoint
// after one. While nothing is appended it sends nothing, so it does not learn it, and Done stays
// open. A check of the term asks the election, not the log, and does not find it out either. Until ends
// the writer when the term is lost.
func (w *Writer) Done() <-chan struct{} { return w.closed }

// Flush waits for the outcome of everything that was appended before. It returns nil if all
// that was ever appended is part of the history. Otherwise it returns the reason, which is
// [ErrUnknown] if the outcome of any append is. If ctx ends first, the error is ErrUnknown.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	pending := slices.Clone(w.window)
	if !w.waiting.Empty() {
		w.hurry()
		pending = append(pending, w.waiting)
	}
	w.mu.Unlock()
	// The last one first: if it is acknowledged, so are all before it. If it has failed,
	// those before it may still be in flight.
	for _, b := range slices.Backward(pending) {
		_, err := Future{b: b}.Wait(ctx)
		if err == nil {
			break
		}
		select {
		case <-b.done:
		default:
			return err // ctx has ended
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life.failed
}

// Close ends the writer. It takes no more appends, and sends what waits for a linger or for
// the rate of requests. It waits for all outcomes, and then notes the tail in the manifest,
// unless Options.Checkpoint is negative. If ctx ends first, what is in flight is cancelled
// and reported as [ErrUnknown].
//
// Files that are not complete are aborted at once. Close waits until their parts are
// deleted, also when ctx has ended: with s3store for 10 s at most.
//
// It returns nil if everything that was ever appended is part of the history. Otherwise it
// returns the reason, which is [ErrUnknown] if the outcome of any append is. [Writer.Err]
// tells whether the writer has met a successor meanwhile. Close may be called again and
// returns the same.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	begun := w.life.closing
	w.life.closing = true
	if w.life.err == nil {
		w.shut(ErrClosed)
	}
	w.changed.Broadcast()
	w.mu.Unlock()

	giveUp := w.abortWith(ctx)
	defer giveUp()
	if begun {
		<-w.finished
	} else {
		w.tasks.Wait()
		w.mu.Lock()
		stop := w.stopUntil
		w.mu.Unlock()
		stop()
		w.abandon(ErrClosed)
		w.ending.Wait()
		close(w.finished)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.life.failed
}
