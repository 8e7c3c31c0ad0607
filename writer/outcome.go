package writer

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// outcome is what became of one slot.
type outcome struct {
	applied bool   // its object is, or has been, in the store
	void    uint64 // the first slot that can never be part of the history, 0 if none is known
	err     error  // why the writer stops
}

// classify says what the answer to a batch's request means.
func (w *Writer) classify(ctx context.Context, b *batch, err error) outcome {
	if err == nil {
		return outcome{applied: true}
	}
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &conflict):
		return w.classifyFound(ctx, b, conflict)
	case store.OutcomeOf(err) == store.Rejected:
		// guard:rejected. If the store rejected every request for a slot, this slot and all slots after
		// it are reported as not committed.
		return outcome{void: b.at.Seq, err: fmt.Errorf("writer: %w", err)}
	}
	return outcome{err: fmt.Errorf("writer: %w", err)}
}

// classifyFound says what another object in the batch's slot means.
func (w *Writer) classifyFound(ctx context.Context, b *batch, c *store.ConflictError) outcome {
	epoch, key := w.token.Epoch(), layout.DataKey(b.at)
	// guard:append-damage. If the writer's slot holds an object that names another log or another slot,
	// that is damage, and proves nothing: the writer stops, and reports the outcome of its append as
	// unknown.
	//
	//mutant:replace h.Log != w.format.Log || h.Position != b.at => false
	h, err := frame.DecodeHeader(c.Body)
	if err == nil && (h.Log != w.format.Log || h.Position != b.at) {
		err = fmt.Errorf("%w: it is object %v of log %s", fence.ErrCorrupt, h.Position, h.Log)
	}
	if err != nil {
		return outcome{err: fmt.Errorf("writer: %s holds something else: %w", key, err)}
	}
	fenced := &fence.FencedError{Role: string(layout.Writer), Epoch: epoch, By: h.Next, Key: key, Err: c}
	if h.Kind != frame.Seal {
		// guard:append-foreign. If the writer's slot holds data that the writer did not send, another
		// process has the same token, and the writer stops.
		fenced.By = epoch
		return outcome{err: fenced}
	}
	// guard:append-refresh. A seal in the writer's slot fences the writer if the floor has not passed
	// the slot.
	//
	//mutant:replace !m.Past(b.at) => false
	m, err := w.log.Newest(ctx)
	if err != nil {
		return outcome{err: fmt.Errorf("writer: %s is sealed by epoch %d; whether the seal counts is unknown, because the manifest cannot be read: %w", key, h.Next, err)}
	}
	switch floor := m.Floor.Position; {
	case !m.Past(b.at):
		return outcome{void: b.at.Seq, err: fenced}
	case floor.Epoch == epoch:
		// guard:append-junk-seal. If the writer meets a seal in its slot, and the floor is after this
		// slot in the same epoch, the append is committed.
		return outcome{applied: true}
	}
	seal, known, err := w.log.SealOf(ctx, m, epoch)
	if err != nil {
		return outcome{err: fmt.Errorf("writer: %s is sealed by epoch %d; where this epoch ended is unknown, because the manifest's lists cannot be read: %w", key, h.Next, err)}
	}
	// guard:append-forgotten. If the floor has passed the writer's epoch, and the manifest does not
	// list that epoch's seal, the outcome of the slot is unknown.
	if !known {
		return outcome{err: fmt.Errorf("%w; the manifest does not name the seal of epoch %d", fenced, epoch)}
	}
	// guard:append-ended. If the seal of the writer's epoch was folded, all slots before this seal are
	// committed, and the others are void.
	//
	//mutant:replace applied: true, void => void
	fenced.By = seal.Next
	return outcome{applied: true, void: seal.Position.Seq, err: fenced}
}

// acknowledge fails what can never be part of the history, and acknowledges the prefix of
// the window that is applied. It returns how many appends it has acknowledged. Called with mu
// held.
func (w *Writer) acknowledge() (appends int) {
	// guard:void. The first void slot and all slots after it are reported as not committed, even those
	// that are applied.
	//
	//mutant:replace w.life.void > 0 && len => false && len
	for w.life.void > 0 && len(w.window) > 0 {
		b := w.window[len(w.window)-1]
		if b.at.Seq < w.life.void {
			break
		}
		w.window = w.window[:len(w.window)-1]
		w.bytes -= b.bytes
		w.fail(b, notCommitted(w.life.stop))
		if b.cancel != nil {
			b.cancel()
		}
	}
	// guard:contiguous. A slot is acknowledged only when all slots before it are applied.
	//
	//mutant:replace len(w.window) > 0 && w.window[0].applied => len(w.window) > 0
	for len(w.window) > 0 && w.window[0].applied {
		b := w.window[0]
		appends += b.appends
		w.window[0] = nil // the array stays
		w.window = w.window[1:]
		w.bytes -= b.bytes
		w.acked = b.after
		// tuning:tail-bound. A leader makes a checkpoint not only from time to time, but also when many
		// objects have been committed since the last one.
		if w.tail.grow(b) {
			select {
			case w.long <- struct{}{}:
			default: // the checkpointer has not come to the last one yet
			}
		}
		if w.opts.Hooks.Acknowledged != nil {
			b.acknowledged = w.opts.Clock.Now()
			w.reports = append(w.reports, b)
		}
		close(b.done)
	}
	// guard:lower-slots. A halted writer reports slots as unknown when none of its requests is in
	// flight any more, and not before.
	if w.life.stop != nil && w.inFlight == 0 {
		for _, b := range w.window {
			w.fail(b, unknown(w.life.stop))
		}
		w.window, w.bytes = nil, 0
	}
	w.changed.Broadcast()
	return appends
}

// fail ends a batch that is not acknowledged. Called with mu held.
func (w *Writer) fail(b *batch, err error) {
	w.life.fail(err)
	b.err = err
	close(b.done)
}

// report calls the hook for batches that were acknowledged. Senders finish in any order, so
// they take turns, and each reports all that there is.
func (w *Writer) report() {
	hook := w.opts.Hooks.Acknowledged
	if hook == nil {
		return
	}
	w.reporting.Lock()
	defer w.reporting.Unlock()
	w.mu.Lock()
	batches := w.reports
	w.reports = w.reported[:0]
	w.mu.Unlock()
	for _, b := range batches {
		hook(Acknowledgement{
			Position: b.at, First: b.first, Records: b.count, Bytes: int64(b.stored), Payload: int64(b.bytes),
			Took: b.acknowledged.Sub(b.sent), Answered: b.answered.Sub(b.sent),
		})
	}
	clear(batches)
	w.reported = batches // its array is used again: a hook costs no allocation
}

// shut makes the writer take no more appends. What waits is still sent. Called with mu held.
func (w *Writer) shut(err error) {
	if !w.life.shut(err) {
		return
	}
	// guard:file-until. A writer that takes no more commits aborts its open files.
	//
	//mutant:replace f.cancel(err) => _ = f
	for f := range w.files {
		f.cancel(err)
	}
	close(w.closed)
	if w.opts.Hooks.Ended != nil {
		w.ending.Go(w.end)
	}
}

// end calls the hook once Err is final: a task that still runs may meet a successor.
func (w *Writer) end() {
	w.tasks.Wait()
	w.opts.Hooks.Ended(Ending{Epoch: w.token.Epoch(), Err: w.Err(), Lasted: w.opts.Clock.Now().Sub(w.opened)})
}

// halt makes the writer also send nothing more. What waits is certainly not committed. What
// is in flight goes on until its outcome is known. Called with mu held, and acknowledge is
// called after it.
func (w *Writer) halt(err error) {
	w.shut(err)
	if !w.life.halt(err) {
		return
	}
	level := zap.WarnLevel
	switch {
	case errors.Is(err, ErrFenced):
		level = zap.InfoLevel // a successor leads: that is not the writer's failure
	case errors.Is(err, ErrClosed):
		level = zap.DebugLevel // whoever ended it knows, and has said why
	}
	w.opts.Logger.Log(level, "stopped", sink.Epoch(w.token.Epoch()), zap.Error(err))
	if b := w.waiting; !b.Empty() {
		w.waiting = newBatch()
		b.Builder = frame.Builder{}
		w.fail(b, notCommitted(err))
	}
}

// abort halts the writer and also cancels what is in flight.
func (w *Writer) abort(cause error) {
	cause = w.outage.Explain(cause)
	w.mu.Lock()
	if w.drained() {
		w.shut(cause)
	} else {
		w.halt(cause)
	}
	w.mu.Unlock()
	w.abandon(cause)
	w.mu.Lock()
	w.acknowledge()
	w.mu.Unlock()
}

// drained reports whether nothing waits and nothing is in flight. Called with mu held.
func (w *Writer) drained() bool { return w.waiting.Empty() && len(w.window) == 0 && w.inFlight == 0 }
