package writer

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// dispatch takes what waits whenever a request is free, and sends it. There is no
// tick: an idle pipeline sends at once, a full one lets the batch grow.
func (w *Writer) dispatch() {
	requests := &crew{w: w, work: make(chan func())}
	defer close(requests.work)
	for {
		w.mu.Lock()
		w.disarm()
		for w.stop == nil && !w.sendable() && (w.err == nil || !w.waiting.Empty()) {
			w.changed.Wait()
		}
		if w.stop != nil || w.waiting.Empty() {
			w.disarm()
			w.mu.Unlock()
			return
		}
		b, prev := w.waiting, w.last
		if w.pace.interval > 0 {
			w.pace.sent(w.opts.Clock.Now())
		}
		w.waiting = w.newBatch()
		ctx, cancel := context.WithCancel(w.slots)
		b.at, b.first, b.bytes, b.count, b.cancel = w.next, w.offset, b.Size(), b.Records(), cancel
		w.last = b
		w.next.Seq++
		w.offset += uint64(b.count)
		w.window = append(w.window, b)
		w.inFlight++
		w.encoding++
		w.bytes += b.bytes
		w.changed.Broadcast() // there is room again
		w.mu.Unlock()

		requests.run(func() {
			defer cancel()
			object, free := w.encode(b, prev)
			if w.send(ctx, b, object) {
				free()
			}
		})
	}
}

// encode makes the object of b, which follows that of prev. The function returned gives
// its memory back.
func (w *Writer) encode(b, prev *batch) (object []byte, free func()) {
	codec := frame.Zstd
	if w.opts.NoCompress {
		codec = frame.Plain
	}
	// Several pack at once, so one processor is not the limit.
	b.Pack(codec)
	// guard:encode-order. Only the header waits for that of the batch before, whose
	// checksum it carries.
	//
	//mutant:replace <-prev.encoded => _ = prev.encoded
	<-prev.encoded
	at := prev.after
	h := frame.Header{
		Log: w.format.Log, Nonce: fence.ID(uuid.New()), Position: b.at, Offset: b.first, Prev: at.Prev,
		Time: w.opts.Clock.Wall(),
	}
	object = b.Stamp(&h)
	b.after, b.stored = at.After(&h, b.Cursor()), len(object)
	b.sent = w.opts.Clock.Now()
	close(b.encoded)
	free = w.release(b, h.Codec)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.encoding--; w.encoding == w.encoders-1 {
		w.changed.Broadcast() // the dispatcher may be waiting for it
	}
	if w.stop != nil {
		b.cancel() // it was stopped meanwhile
	}
	return object, free
}

// crew is the goroutines that make requests. They stay, since a new one would grow
// its stack anew for each request: a tenth of what a request costs the processor.
type crew struct {
	w       *Writer
	work    chan func()
	workers int
}

// run hands f to an idle worker, or to a new one. There are at most InFlight, and
// no more are busy, so one that has just finished takes f if all are there.
func (c *crew) run(f func()) {
	if c.workers == c.w.opts.InFlight {
		c.work <- f
		return
	}
	select {
	case c.work <- f:
	default:
		c.workers++
		c.w.tasks.Go(func() {
			f()
			for f := range c.work {
				f()
			}
		})
	}
}

// sendable reports whether what waits may be sent now. Called with mu held.
func (w *Writer) sendable() bool {
	return !w.waiting.Empty() &&
		// guard:in-flight. What the caller has granted of connections and memory.
		w.inFlight < w.opts.InFlight &&
		// More at once would only take turns, and each be later: until one is through the
		// batch grows. One that is packed, and waits for the header of a large one before
		// it, counts too: small ones would only be cut in the meantime.
		w.encoding < w.encoders &&
		// guard:window. Slot s is sent only when all up to s-Window are applied. An
		// opener's wall has a seal further ahead than that, so nothing can be sent past it.
		len(w.window) < w.opts.Window &&
		// guard:max-bytes. Memory, whatever the store's latency.
		(len(w.window) == 0 || w.bytes+w.waiting.Size() <= w.opts.MaxBytes) &&
		w.ripe()
}

// send settles one slot, under the slot's own context, and reports whether its object
// is in the store.
func (w *Writer) send(ctx context.Context, b *batch, object []byte) (applied bool) {
	var v verdict
	if ctx.Err() != nil {
		// guard:never-sent. The writer was stopped before this slot's first request:
		// it stays empty until it is sealed, and nothing behind it can count.
		v = verdict{void: b.at.Seq, err: context.Cause(ctx)}
	} else {
		b.crc = frame.Sum(object)
		_, err := store.Create(ctx, w.st, layout.DataKey(b.at), object, &store.WriteOptions{
			Settle: w.opts.Settle, Identity: identity, CRC32C: &b.crc, Hedge: w.opts.hedge,
		})
		v = w.judge(ctx, b, err)
	}
	w.mu.Lock()
	b.settled = w.opts.Clock.Now()
	b.applied = v.applied
	w.inFlight--
	if v.err != nil {
		if v.void > 0 && (w.void == 0 || v.void < w.void) {
			w.void = v.void
		}
		w.halt(v.err)
	}
	w.settle()
	w.mu.Unlock()
	w.report()
	return v.applied
}

// verdict is what became of one slot.
type verdict struct {
	applied bool   // its object is, or has been, in the store
	void    uint64 // the first slot that can never be part of the history, 0 if none is known
	err     error  // why the writer stops
}

func (w *Writer) judge(ctx context.Context, b *batch, err error) verdict {
	if err == nil {
		return verdict{applied: true}
	}
	var conflict *store.ConflictError
	switch {
	case errors.As(err, &conflict):
		return w.judgeFound(ctx, b, conflict)
	case store.OutcomeOf(err) == store.Rejected:
		// guard:rejected. The store turned the only attempt away and wrote nothing:
		// this slot stays empty until it is sealed, and nothing behind it can count.
		return verdict{void: b.at.Seq, err: fmt.Errorf("writer: %w", err)}
	}
	return verdict{err: fmt.Errorf("writer: %w", err)}
}

// judgeFound decides what another object in the slot means.
func (w *Writer) judgeFound(ctx context.Context, b *batch, c *store.ConflictError) verdict {
	epoch := w.token.Epoch()
	// guard:append-damage. Nothing follows from an object that is not of this log.
	//
	//mutant:replace h.Log != w.format.Log || h.Position != b.at => false
	h, err := frame.DecodeHeader(c.Body)
	if err == nil && (h.Log != w.format.Log || h.Position != b.at) {
		err = fmt.Errorf("%w: it is object %v of log %s", fence.ErrCorrupt, h.Position, h.Log)
	}
	if err != nil {
		return verdict{err: fmt.Errorf("writer: %s holds something else: %w", layout.DataKey(b.at), err)}
	}
	fenced := &fence.FencedError{Role: string(layout.Writer), Epoch: epoch, By: h.Next, Key: layout.DataKey(b.at), Err: c}
	if h.Kind != frame.Seal {
		// guard:append-foreign. Data of our epoch that we did not write: another
		// process was given the same token. Nothing can be said of this slot.
		fenced.By = epoch
		return verdict{err: fenced}
	}
	// guard:append-refresh. A seal. Either a successor has fenced us, or our object
	// landed long ago, its reply was lost, it was folded and pruned, and a zombie
	// opener's seal fell into the hole: then the batch is committed. The manifest
	// tells.
	//
	//mutant:replace !m.Past(b.at) => false
	m, err := w.log.Newest(ctx)
	if err != nil {
		return verdict{err: fmt.Errorf("writer: %s is sealed by epoch %d, and the manifest that tells whether the seal counts cannot be read: %w", layout.DataKey(b.at), h.Next, err)}
	}
	switch floor := m.Floor.Position; {
	case !m.Past(b.at):
		return verdict{void: b.at.Seq, err: fenced}
	case floor.Epoch == epoch:
		// guard:append-junk-seal. Folded within our epoch: nobody has replaced us.
		return verdict{applied: true}
	}
	seal, known, err := w.log.SealOf(ctx, m, epoch)
	if err != nil {
		return verdict{err: fmt.Errorf("writer: %s is sealed by epoch %d, and where the epoch ended cannot be read: %w", layout.DataKey(b.at), h.Next, err)}
	}
	// guard:append-forgotten. Where the epoch ended nobody can tell, so nothing can be
	// said of this slot.
	if !known {
		return verdict{err: fmt.Errorf("%w; the manifest does not know a seal of epoch %d", fenced, epoch)}
	}
	// guard:append-ended. What is before that seal was folded, so it is committed; the
	// rest is void. A successor there is in either case.
	//
	//mutant:replace applied: true, void => void
	fenced.By = seal.Next
	return verdict{applied: true, void: seal.Position.Seq, err: fenced}
}

// settle refuses what can never be part of the history, acknowledges the
// contiguous prefix of the rest, and only that. Called with mu held.
func (w *Writer) settle() {
	// guard:void. What is behind a slot that is lost is lost too, also if it landed.
	//
	//mutant:replace w.void > 0 && len => false && len
	for w.void > 0 && len(w.window) > 0 {
		b := w.window[len(w.window)-1]
		if b.at.Seq < w.void {
			break
		}
		w.window = w.window[:len(w.window)-1]
		w.bytes -= b.bytes
		w.fail(b, notCommitted(w.stop))
		if b.cancel != nil {
			b.cancel()
		}
	}
	// guard:contiguous. A slot behind a gap may be applied and still never be on
	// the chain: a successor's seal may fall into the gap.
	//
	//mutant:replace len(w.window) > 0 && w.window[0].applied => len(w.window) > 0
	for len(w.window) > 0 && w.window[0].applied {
		b := w.window[0]
		w.window[0] = nil // the array stays
		w.window = w.window[1:]
		w.bytes -= b.bytes
		w.acked = b.after
		if w.opts.Hooks.Acknowledged != nil {
			b.acknowledged = w.opts.Clock.Now()
			w.reports = append(w.reports, b)
		}
		close(b.done)
	}
	// guard:lower-slots. A slot that is refused says nothing of those before it:
	// they are settled one by one. The rest is unknown once nobody works on it.
	if w.stop != nil && w.inFlight == 0 {
		for _, b := range w.window {
			w.fail(b, unknown(w.stop))
		}
		w.window, w.bytes = nil, 0
	}
	w.changed.Broadcast()
}

// fail ends a batch that is not acknowledged. Called with mu held.
func (w *Writer) fail(b *batch, err error) {
	if w.failed == nil || errors.Is(err, ErrUnknown) {
		w.failed = err
	}
	b.err = err
	close(b.done)
}

// report calls the hook for acknowledged batches. Senders finish in any order, so
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
	w.reports = nil
	w.mu.Unlock()
	for _, b := range batches {
		hook(Slot{
			Position: b.at, First: b.first, Records: b.count, Bytes: b.stored, Payload: b.bytes,
			Took: b.acknowledged.Sub(b.sent), Settled: b.settled.Sub(b.sent),
		})
	}
}

// refuse makes the writer take nothing more. Called with mu held.
func (w *Writer) refuse(err error) {
	switch {
	case w.err != nil && !errors.Is(w.err, ErrFenced) && errors.Is(err, ErrFenced):
		w.err = err // while it was closing, or had failed: that it is over for good is news
	case w.err == nil:
		w.err = err
		// guard:file-until. What is still open can never be committed.
		//
		//mutant:replace f.cancel(err) => _ = f
		for f := range w.files {
			f.cancel(err)
		}
		close(w.closed)
	}
}

// halt makes the writer send nothing more. What waits was never sent, so it is
// certainly not committed; what is under way goes on until it is settled. Called
// with mu held, and settle is called after it.
func (w *Writer) halt(err error) {
	w.refuse(err)
	if w.stop != nil {
		return
	}
	w.stop = err
	w.opts.Logger.Warn("stopped", zap.Uint64("epoch", uint64(w.token.Epoch())), zap.Error(err))
	if b := w.waiting; !b.Empty() {
		w.waiting = newBatch()
		b.Builder = frame.Builder{}
		w.fail(b, notCommitted(err))
	}
}

// abort gives up on everything that is not settled.
func (w *Writer) abort(cause error) {
	w.mu.Lock()
	if w.drained() {
		w.refuse(cause)
	} else {
		w.halt(cause)
	}
	w.mu.Unlock()
	w.abandon(cause)
	w.mu.Lock()
	w.settle()
	w.mu.Unlock()
}

// drained reports whether nothing waits and nothing is under way. Called with mu
// held.
func (w *Writer) drained() bool { return w.waiting.Empty() && len(w.window) == 0 && w.inFlight == 0 }
