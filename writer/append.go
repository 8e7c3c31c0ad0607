package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// AppendOption is an addition to an append.
type AppendOption struct {
	cursor    []byte
	hasCursor bool
}

// Cursor stores the producer's position with the records, in one atom: a Kafka offset, a
// place in a file. The next leader finds the last committed cursor in [Recovered], and
// resumes exactly where the history ends. An empty cursor clears the one before.
func Cursor(c []byte) AppendOption { return AppendOption{cursor: c, hasCursor: true} }

// Append appends records in one atom, with the cursor if one is given. It returns the offset
// of the first record when all are durable and part of the history for ever. Errors: those
// of [Writer.AppendAsync] and of [Future.Wait].
func (w *Writer) Append(ctx context.Context, records [][]byte, opts ...AppendOption) (uint64, error) {
	f, err := w.AppendAsync(ctx, records, opts...)
	if err != nil {
		return 0, err
	}
	return f.Wait(ctx)
}

// AppendAsync appends records in one atom, with the cursor if one is given, and returns a
// Future of the outcome. It copies the records. Appends by one goroutine keep their order.
//
// It waits only for room. ctx bounds that wait: if it ends, nothing was appended. All errors
// are [ErrNotCommitted], and the Future returned with one carries it too: [ErrTooLarge];
// [ErrFenced], [ErrClosed] or what [Writer.Err] says; ctx's.
func (w *Writer) AppendAsync(ctx context.Context, records [][]byte, opts ...AppendOption) (Future, error) {
	e, err := w.measure(records, opts)
	if err != nil {
		err = notCommitted(err)
		return failedFuture(err), err
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

func (w *Writer) measure(records [][]byte, opts []AppendOption) (entry, error) {
	limits := w.format.Limits
	e := entry{records: records}
	for i, r := range records {
		if err := frame.CheckRecord(limits, len(r)); err != nil {
			return e, fmt.Errorf("%w: record %d: %w", ErrTooLarge, i, err)
		}
		e.size += frame.RecordSize(len(r))
	}
	if int64(e.size) > limits.Object {
		return e, fmt.Errorf("%w: the append has %d bytes; it becomes one object, and this log allows objects of %d; append less at a time", ErrTooLarge, e.size, limits.Object)
	}
	if err := e.apply(opts, limits); err != nil {
		return e, err
	}
	if len(records) == 0 && !e.hasCursor {
		return e, errors.New("writer: nothing to append: no record and no cursor")
	}
	return e, nil
}

func (e *entry) apply(opts []AppendOption, limits fence.Limits) error {
	for _, o := range opts {
		if o.hasCursor {
			e.cursor, e.hasCursor = o.cursor, true
		}
	}
	if err := frame.CheckCursor(limits, len(e.cursor)); err != nil {
		return fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	return nil
}

// enqueue copies an entry into the waiting batch, once there is room.
func (w *Writer) enqueue(ctx context.Context, e entry) (Future, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.life.err == nil && !w.room(&e) {
		stop := context.AfterFunc(ctx, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changed.Broadcast()
		})
		defer stop()
		w.editWaits = w.editWaits || e.edit != nil
		for w.life.err == nil && !w.room(&e) && ctx.Err() == nil {
			w.fill()
			w.changed.Wait()
		}
		if e.edit != nil {
			w.editWaits = false // one edit waits at a time
			w.changed.Broadcast()
		}
	}
	err := w.life.err
	if err == nil && ctx.Err() != nil {
		err = w.outage.Cause(ctx)
	}
	if err != nil {
		err = notCommitted(err)
		return failedFuture(err), err
	}
	b := w.waiting
	news := b.Empty()
	if w.opts.Linger > 0 && news {
		b.begun = w.opts.Clock.Now()
	}
	f := Future{b, b.Records()}
	for _, r := range e.records {
		b.Add(r)
	}
	if e.edit != nil {
		if b.edit = w.together(&e); b.edit == nil {
			b.edit = e.edit
		}
		b.SetEdit(b.edit)
	}
	if e.hasCursor {
		b.SetCursor(e.cursor)
	}
	b.appends++
	if w.pace.learned() && (w.pace.append(w.opts.Clock) || b.Size() >= w.pace.bulk() && !b.full) {
		b.full, news = b.full || b.Size() >= w.pace.bulk(), true
	}
	if e.edit != nil || int64(b.Size()) >= w.opts.BatchBytes {
		b.hurry, b.full, news = true, b.full || e.edit == nil, true
	}
	if news { // to the dispatcher, which does not care about one record more
		w.rouse()
		w.changed.Broadcast()
	}
	return f, nil
}

// hurry ends the linger of the waiting batch, because somebody waits for all that was
// appended. Called with mu held.
func (w *Writer) hurry() {
	if !w.waiting.hurry {
		w.waiting.hurry = true
		w.changed.Broadcast()
	}
}

// fill makes the waiting batch be sent as soon as a request is free, because it takes no
// more. Called with mu held.
func (w *Writer) fill() {
	if !w.waiting.full {
		w.waiting.hurry, w.waiting.full = true, true
		w.changed.Broadcast()
	}
}

// room reports whether the waiting batch has room for e. Called with mu held.
func (w *Writer) room(e *entry) bool {
	switch {
	case e.edit != nil:
		// guard:edit-alone. An edit shares an object only with edits that can be joined with it, and
		// never with records.
		return w.waiting.Empty() || w.together(e) != nil
	case w.editWaits || w.waiting.IsEdit():
		// guard:edit-turn. While an edit waits, in a batch or for an empty batch, appends of records
		// wait too.
		return false
	}
	return w.waiting.Empty() || int64(w.waiting.Size()+e.size) <= w.opts.BatchBytes
}

// Future is the outcome of an append, now or later. The zero Future, and one that was
// returned with an error, is of no append: it is done, and Wait returns an error that is
// [ErrNotCommitted].
type Future struct {
	b     *batch
	index int // of the first record in the batch
}

// failedFuture is the outcome of an append that was not enqueued.
func failedFuture(err error) Future {
	return Future{b: &batch{done: closed, err: err}}
}

// none is the batch of the zero Future.
var none = failedFuture(notCommitted(errors.New("writer: the zero Future is of no append"))).b

// closed is closed always.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (f Future) batch() *batch {
	if f.b == nil {
		return none
	}
	return f.b
}

// Wait returns the offset of the first record once the append is durable and part of the
// history for ever. Otherwise its error wraps the reason. It is [ErrNotCommitted] if the
// records can no longer become part of the history, and [ErrUnknown] if they can. If ctx
// ends first, the error is ErrUnknown with ctx's cause. The append goes on, and Wait may be
// called again.
func (f Future) Wait(ctx context.Context) (uint64, error) {
	b := f.batch()
	select {
	case <-b.done:
	default:
		select {
		case <-b.done:
		case <-ctx.Done():
			// guard:slot-context. When a caller's ctx ends, only the caller's wait ends; the request
			// for its slot goes on.
			//
			//mutant:replace return => b.cancel(); return
			return 0, unknown(b.pending(context.Cause(ctx)))
		}
	}
	if b.err != nil {
		return 0, b.err
	}
	return b.first + uint64(f.index), nil
}

// Done is closed when Wait would return at once.
func (f Future) Done() <-chan struct{} { return f.batch().done }
