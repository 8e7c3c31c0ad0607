package writer

import (
	"context"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// dispatch sends the waiting batch whenever a request is free. There is no tick: an idle
// pipeline sends at once, and in a full one the batch grows. It ends with the writer, or when
// the writer rests and no longer has this crew.
func (w *Writer) dispatch(requests *crew) {
	defer close(requests.work)
	for {
		w.mu.Lock()
		if w.crew == requests {
			w.stopWake()
		}
		for w.crew == requests && w.life.stop == nil && !w.sendable() && (w.life.err == nil || !w.waiting.Empty()) {
			w.changed.Wait()
		}
		if w.crew != requests { // an append may have begun the next one already
			w.mu.Unlock()
			return
		}
		if w.life.stop != nil || w.waiting.Empty() {
			w.stopWake()
			w.mu.Unlock()
			return
		}
		b, prev := w.waiting, w.last
		if w.pace.keeps() {
			w.pace.sent(w.opts.Clock.Now())
		}
		w.waiting = w.newBatch()
		ctx, cancel := context.WithCancel(w.slots)
		b.at, b.first, b.bytes, b.count, b.cancel = w.next, w.offset, b.Size(), b.Records(), cancel
		w.prepare(b)
		b.edit = nil // for whoever keeps the Future
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

// prepare says whether and when the batch b, which takes its place in the pipeline, is sent a
// second time. Called with mu held.
func (w *Writer) prepare(b *batch) {
	if !w.pace.learned() || b.bytes >= w.pace.bulk() {
		return // a second request costs more than it saves
	}
	b.hedge = w.hedge
	// tuning:hedge-full. If an object was sent because it is full, being overtaken is no reason to send
	// it again.
	//
	//mutant:replace !b.full => true
	if b.hedge != nil && !b.full {
		b.overtaken = make(chan struct{})
		if w.pace.twice(b, w.inFlight == 0) {
			b.passed = true
			close(b.overtaken)
		}
	}
}

// sendable reports whether the waiting batch may be sent now. Called with mu held.
func (w *Writer) sendable() bool {
	return !w.waiting.Empty() &&
		// tuning:in-flight. At most Options.Concurrency objects are in flight; the next one takes more records
		// until one of them is answered.
		w.inFlight < w.opts.Concurrency &&
		// More encoders than processors would only take turns, and all would be later. A batch
		// that is packed, and waits for the header of a large one before it, counts too.
		// Otherwise many small batches would be cut meanwhile.
		w.encoding < w.encoders &&
		// guard:window. Slot s is sent only when all slots up to s - Window are applied.
		len(w.window) < w.opts.Window &&
		// guard:max-bytes. At most MaxBytes of appends are sent and not acknowledged; a larger append
		// is sent alone.
		(len(w.window) == 0 || int64(w.bytes+w.waiting.Size()) <= w.opts.MaxBytes) &&
		w.ripe()
}

// encode makes the object of b, which follows that of prev. The function returned frees the
// object's memory.
func (w *Writer) encode(b, prev *batch) (object []byte, free func()) {
	codec := frame.Zstd
	if w.opts.NoCompress {
		codec = frame.Plain
	}
	b.Pack(codec) // several at once, so one processor is not the limit
	// guard:encode-order. An object gets its header only after the one before it, whose checksum the
	// header carries.
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
	if w.life.stop != nil {
		b.cancel() // the writer was halted meanwhile
	}
	return object, free
}

// send writes one slot, under the slot's own context, and reports whether its object is in
// the store.
func (w *Writer) send(ctx context.Context, b *batch, object []byte) (applied bool) {
	var o outcome
	if ctx.Err() != nil {
		// guard:never-sent. A slot for which no request was sent when the writer was halted is reported
		// as not committed.
		o = outcome{void: b.at.Seq, err: context.Cause(ctx)}
	} else {
		b.crc = frame.Sum(object)
		_, err := store.Create(ctx, w.st, layout.DataKey(b.at), object, &store.WriteOptions{
			// The header, with its nonce, tells an object from all others.
			Settle: w.settle, Identity: frame.HeaderSize, CRC32C: &b.crc, Hedge: b.hedge, Overtaken: b.overtaken, Clean: &b.clean,
		})
		o = w.classify(ctx, b, err)
	}
	answered := w.opts.Clock.Now() // before the lock, for which it may have to wait
	w.mu.Lock()
	b.answered = answered
	b.applied = o.applied
	// tuning:pace-sample. The writer's mean of the latency counts only objects that took one request.
	//
	//mutant:replace b.clean => b.clean || true
	if b.clean {
		w.pace.learn(b.answered.Sub(b.sent), len(object))
	}
	w.inFlight--
	if o.applied {
		w.overtake(b)
	}
	if o.err != nil {
		w.life.voidFrom(o.void)
		w.halt(o.err)
	}
	before := w.acked
	w.pace.acknowledged(w.acknowledge(), b.answered)
	if before.Before(w.acked) {
		w.outage.Answered()
	}
	w.mu.Unlock()
	w.report()
	return o.applied
}

// overtake tells the objects before b, which is applied, that they hold it up. Called with mu
// held.
func (w *Writer) overtake(b *batch) {
	// tuning:hedge-overtaken. If a later object is applied first, an object that is not answered yet is
	// sent a second time at once.
	//
	//mutant:replace range w.window => range w.window[:0]
	for _, before := range w.window {
		if before.at.Seq >= b.at.Seq {
			return
		}
		// tuning:hedge-size. A large object that is overtaken by one of less than half its size is not
		// sent again for that, since its size explains it.
		//
		//mutant:replace before.bytes >= small && 2*b.bytes < before.bytes => false
		if before.bytes >= small && 2*b.bytes < before.bytes {
			continue
		}
		if !before.applied && !before.passed && before.overtaken != nil {
			before.passed = true
			close(before.overtaken)
		}
	}
}

// crew is the goroutines that make requests. They stay until the writer ends or rests. A goroutine
// per request would grow its stack each time, which is a tenth of a request's processor time.
type crew struct {
	w       *Writer
	work    chan func()
	workers int
}

// run hands f to an idle worker, or to a new one. There are at most Concurrency workers, and
// fewer are busy when run is called, so one of them will take f.
func (c *crew) run(f func()) {
	if c.workers == c.w.opts.Concurrency {
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
