package writer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
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
	recovered Recovered
	encoders  int // at once

	slots     context.Context //nolint:containedctx // the slots' own: a caller's context only abandons its wait
	abandon   context.CancelCauseFunc
	tasks     sync.WaitGroup // dispatcher, senders, keeper
	stopUntil func()
	closed    chan struct{} // closed with err
	finished  chan struct{} // closed when Close is through
	reporting sync.Mutex    // held while hooks are called, in order

	mu      sync.Mutex
	changed sync.Cond // of everything below

	pace      pace
	editWaits bool   // an edit wants the next batch
	waiting   *batch // takes what is appended, until a request is free
	// window holds the batches that were sent and not yet acknowledged, in order.
	window   []*batch
	inFlight int
	encoding int            // of those in flight, that are not encoded yet
	bytes    int            // payload in window
	last     *batch         // in the pipeline
	next     fence.Position // of the batch behind it
	offset   uint64         // likewise
	acked    frame.Point    // behind the last batch acknowledged
	void     uint64         // the first slot that can never be part of the history, 0 if none is known
	err      error          // why nothing more is taken
	stop     error          // why nothing more is sent
	ended    bool           // Close was called
	failed   error          // of the appends that were not acknowledged; an unknown one before all
	reports  []*batch       // acknowledged, hook not yet called

	files     map[*FileWriter]struct{} // open
	completed map[string]int64         // files that are complete and not added yet, with their sizes
	table     table                    // has its own lock
	buffers   buffers                  // so has this
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

func start(log *state.Log, token fence.Token, begin frame.Point, opts Options) (*Writer, error) {
	updater, err := log.Updater(layout.Writer, token)
	if err != nil {
		return nil, err
	}
	w := &Writer{
		log: log, st: log.Store(), format: log.Format(), token: token, opts: opts,
		recovered: Recovered{Epoch: token.Epoch(), Offset: begin.Offset, Cursor: bytes.Clone(begin.Cursor)},
		closed:    make(chan struct{}), finished: make(chan struct{}),
		waiting: newBatch(), next: begin.Position, offset: begin.Offset, acked: begin, pace: newPace(&opts),
		encoders: min(runtime.GOMAXPROCS(0), frame.MaxPacking),
		files:    map[*FileWriter]struct{}{}, completed: map[string]int64{}, table: newTable(begin),
	}
	w.last = &batch{after: begin, encoded: closed}
	w.changed.L = &w.mu
	w.slots, w.abandon = context.WithCancelCause(context.Background())
	w.stopUntil = func() {}
	w.tasks.Add(2)
	go func() { defer w.tasks.Done(); w.dispatch() }()
	go func() { defer w.tasks.Done(); w.keep(updater) }()
	if opts.Until != nil {
		w.stopUntil = w.abortWith(opts.Until)
	}
	return w, nil
}

// abortWith gives up on everything when ctx ends. The function returned ends
// that, and waits for it if it has begun.
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

// Recovered tells where the history ended when the writer was opened.
func (w *Writer) Recovered() Recovered { return w.recovered }

// Epoch returns the writer's epoch.
func (w *Writer) Epoch() fence.Epoch { return w.token.Epoch() }

// Format returns the log's format, with its limits.
func (w *Writer) Format() manifest.Format { return w.format }

// Err returns why the writer takes nothing any more, or nil: [ErrFenced],
// [ErrClosed], or what the store failed with. Once set it stays, but that
// ErrFenced takes the place of another reason if a successor is met while what was
// under way is settled.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Done is closed when the writer takes nothing any more; see [Writer.Err].
func (w *Writer) Done() <-chan struct{} { return w.closed }

// Append appends records in one atom, with the cursor if one is given, and
// returns the offset of the first when they are durable and part of the history
// for ever. See [Future.Wait] for its errors, [Writer.AppendAsync] for those
// before it.
func (w *Writer) Append(ctx context.Context, records [][]byte, opts ...AppendOption) (uint64, error) {
	f, err := w.AppendAsync(ctx, records, opts...)
	if err != nil {
		return 0, err
	}
	return f.Wait(ctx)
}

// AppendAsync appends records in one atom, with the cursor if one is given, and
// returns a Future of the outcome. The records are copied before it returns. It
// waits only for room: ctx bounds that wait, and then nothing was appended.
//
// Appends by one goroutine keep their order. All errors are [ErrNotCommitted]:
// [ErrTooLarge]; [ErrFenced], [ErrClosed] or the reason of [Writer.Err]; ctx's. The
// Future returned with one carries it too.
func (w *Writer) AppendAsync(ctx context.Context, records [][]byte, opts ...AppendOption) (Future, error) {
	e, err := w.measure(records, opts)
	if err != nil {
		err = notCommitted(err)
		return refused(err), err
	}
	return w.enqueue(ctx, e)
}

// entry is what one append puts into an object: records, or an edit, and a cursor.
type entry struct {
	records   [][]byte
	edit      []byte // the document; nil for records
	size      int    // of the payload
	cursor    []byte
	hasCursor bool
}

// enqueue copies an entry into the batch that waits, once there is room.
func (w *Writer) enqueue(ctx context.Context, e entry) (Future, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && !w.room(&e) {
		stop := context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed.Broadcast()
		})
		defer stop()
		w.editWaits = w.editWaits || e.edit != nil
		for w.err == nil && !w.room(&e) && ctx.Err() == nil {
			w.hurry()
			w.changed.Wait()
		}
		if e.edit != nil {
			w.editWaits = false // one commits at a time
			w.changed.Broadcast()
		}
	}
	err := w.err
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		err = notCommitted(err)
		return refused(err), err
	}
	b := w.waiting
	news := b.Empty()
	if w.opts.Linger > 0 && news {
		b.since = w.opts.Clock.Now()
	}
	f := Future{b, b.Records()}
	for _, r := range e.records {
		b.Add(r)
	}
	if e.edit != nil {
		b.SetEdit(e.edit)
	}
	if e.hasCursor {
		b.SetCursor(e.cursor)
	}
	if b.IsEdit() || b.Size() >= w.opts.BatchBytes {
		b.hurry, news = true, true
	}
	if news { // for the dispatcher: one record more changes nothing that it waits for
		w.changed.Broadcast()
	}
	return f, nil
}

// hurry ends the linger of what waits. Called with mu held.
func (w *Writer) hurry() {
	if w.opts.Linger > 0 && !w.waiting.hurry {
		w.waiting.hurry = true
		w.changed.Broadcast()
	}
}

// room reports whether the waiting batch has room for e. Called with mu held.
func (w *Writer) room(e *entry) bool {
	switch {
	case e.edit != nil:
		// guard:edit-alone. An edit is an object of its own: what was appended before
		// it lies before it.
		return w.waiting.Empty()
	case w.editWaits || w.waiting.IsEdit():
		// guard:edit-turn. Appends that find room again and again would keep an edit
		// waiting for ever.
		return false
	}
	return w.waiting.Empty() || w.waiting.Size()+e.size <= w.opts.BatchBytes
}

func (w *Writer) measure(records [][]byte, opts []AppendOption) (entry, error) {
	limits := w.format.Limits
	e := entry{records: records}
	for i, r := range records {
		if err := frame.CheckRecord(limits.Limits, len(r)); err != nil {
			return e, fmt.Errorf("%w: record %d: %w", ErrTooLarge, i, err)
		}
		e.size += frame.RecordSize(len(r))
	}
	if e.size > limits.Object {
		return e, fmt.Errorf("%w: an append of %d bytes; one append is one object, and the log allows %d; append less at a time", ErrTooLarge, e.size, limits.Object)
	}
	if err := e.apply(opts, limits); err != nil {
		return e, err
	}
	if len(records) == 0 && !e.hasCursor {
		return e, errors.New("writer: nothing to append")
	}
	return e, nil
}

func (e *entry) apply(opts []AppendOption, limits manifest.Limits) error {
	for _, o := range opts {
		if o.hasCursor {
			e.cursor, e.hasCursor = o.cursor, true
		}
	}
	if err := frame.CheckCursor(limits.Limits, len(e.cursor)); err != nil {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return nil
}

// Flush waits until everything appended before is settled. It returns nil if all
// that was ever appended is part of the history, else the reason, which is
// [ErrUnknown] if anything of it may or may not be. If ctx ends first that is
// [ErrUnknown] too.
func (w *Writer) Flush(ctx context.Context) error {
	w.mu.Lock()
	pending := slices.Clone(w.window)
	if !w.waiting.Empty() {
		w.hurry()
		pending = append(pending, w.waiting)
	}
	w.mu.Unlock()
	// The last first: once it is acknowledged, so are all before it. If it is not,
	// those before it may be settled later.
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
	return w.failed
}

// Close takes no more appends, sends what waits for a linger or for the budget of
// requests, waits until all is settled, tells the manifest where the tail is (unless
// Options.Checkpoint is negative), and ends. If ctx ends first it gives up: what is
// under way is reported as [ErrUnknown] to whoever waits for it.
//
// Files that are not complete are given up at once. Close waits until their parts are
// removed, also when ctx has ended: s3store takes 10 s for that at most.
//
// It returns nil if everything that was ever appended is part of the history;
// else the reason, which is [ErrUnknown] if anything may or may not be. If a
// successor was met meanwhile that is in [Writer.Err]. Close may be called again and
// returns the same.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	begun := w.ended
	w.ended = true
	if w.err == nil {
		w.refuse(ErrClosed)
	}
	w.changed.Broadcast()
	w.mu.Unlock()

	giveUp := w.abortWith(ctx)
	defer giveUp()
	if begun {
		<-w.finished
	} else {
		w.tasks.Wait()
		w.stopUntil()
		w.abandon(ErrClosed)
		close(w.finished)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}
