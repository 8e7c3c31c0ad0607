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
		for w.crew == requests && w.stop == nil && !w.sendable() && (w.err == nil || !w.waiting.Empty()) {
			w.changed.Wait()
		}
		if w.crew != requests { // an append may have begun the next one already
			w.mu.Unlock()
			return
		}
		if w.stop != nil || w.waiting.Empty() {
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
	// guard:hedge-full. If an object was sent because it is full, being overtaken is no reason to
	// send it again. Without this rule: a pipeline is full of objects of 64 KiB, and sixteen are
	// sent at almost the same time; most are overtaken soon; one in five is sent twice, although
	// the line is busy and no client waits for one object alone.
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
		// guard:in-flight. At most InFlight objects are in flight; the next one takes more records
		// until one of them is answered. Without this check: the store is slow, and all requests are
		// in flight; the next object gets its slot with the one record that it has, and waits for a
		// free request; the records that come meanwhile need one more object, and one more request is
		// paid for.
		w.inFlight < w.opts.InFlight &&
		// More encoders than processors would only take turns, and all would be later. A batch
		// that is packed, and waits for the header of a large one before it, counts too.
		// Otherwise many small batches would be cut meanwhile.
		w.encoding < w.encoders &&
		// guard:window. Slot s is sent only when all slots up to s - Window are applied. Without
		// this check: slot 5 is late, and the leader sends 5,000 slots after it; successor B
		// expects no more than a few windows, and begins a wall of seals at slot 5; the object of
		// slot 5 is applied before B's seal; B finds data in each slot of its wall, and reads
		// thousands of objects before it comes to a seal of its own.
		len(w.window) < w.opts.Window &&
		// guard:max-bytes. At most MaxBytes of appends are sent and not acknowledged; a larger append
		// is sent alone. Without this check: the log allows objects of 1 GiB, and a program appends as
		// much at a time; the store is slow; the writer holds InFlight such objects, 16 by default,
		// and runs out of memory.
		(len(w.window) == 0 || w.bytes+w.waiting.Size() <= w.opts.MaxBytes) &&
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
	// guard:encode-order. The header of an object carries the checksum of the object before it. So
	// batch 2 gets its header only after batch 1 has its own. Without this wait: batch 2 is small,
	// and is packed before batch 1; the header of batch 2 has no checksum of batch 1; the writer
	// acknowledges both batches; no reader accepts the object of batch 2.
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
		b.cancel() // the writer was halted meanwhile
	}
	return object, free
}

// send writes one slot, under the slot's own context, and reports whether its object is in
// the store.
func (w *Writer) send(ctx context.Context, b *batch, object []byte) (applied bool) {
	var o outcome
	var clean bool // it took one request
	if ctx.Err() != nil {
		// guard:never-sent. A slot for which no request was sent when the writer was halted is
		// reported as not committed. So are all slots after it, even applied ones: the chain does not
		// pass an empty slot, and a successor seals it. Without this check: the writer is halted
		// before its first request for slot 5; the appends of slot 5 are reported as unknown, although
		// they are certainly not in the log.
		o = outcome{void: b.at.Seq, err: context.Cause(ctx)}
	} else {
		b.crc = frame.Sum(object)
		var err error
		_, clean, err = store.CreateClean(ctx, w.st, layout.DataKey(b.at), object, &store.WriteOptions{
			// The header, with its nonce, tells an object from all others.
			Settle: w.settle, Identity: frame.HeaderSize, CRC32C: &b.crc, Hedge: b.hedge, Overtaken: b.overtaken,
		})
		o = w.classify(ctx, b, err)
	}
	answered := w.opts.Clock.Now() // before the lock, for which it may have to wait
	w.mu.Lock()
	b.answered = answered
	b.applied = o.applied
	// guard:pace-sample. The writer's mean of the latency counts only objects that took one request.
	// Without this check: a request takes 30 ms, but for a minute the answers are lost, and each object
	// is sent again after a pause; the mean rises to 200 ms; the objects after them wait for up to
	// 100 ms beside one in flight.
	//
	//mutant:replace clean => clean || true
	if clean {
		w.pace.learn(b.answered.Sub(b.sent), len(object))
	}
	w.inFlight--
	if o.applied {
		w.overtake(b)
	}
	if o.err != nil {
		if o.void > 0 && (w.void == 0 || o.void < w.void) {
			w.void = o.void
		}
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
	// guard:hedge-overtaken. If a later object is applied first, an object that is not answered yet
	// is sent a second time at once. Without this rule: nine of ten requests take 30 ms, and the
	// tenth 80 ms; slot 5 is slow, and slots 6 and 7 are applied; their clients, and those of slot
	// 5, wait for 40 ms more, although a second request for slot 5 would be answered in 30 ms.
	//
	//mutant:replace range w.window => range w.window[:0]
	for _, before := range w.window {
		if before.at.Seq >= b.at.Seq {
			return
		}
		// guard:hedge-size. A large object that is overtaken by one of less than half its size is not sent
		// again for that, since its size explains it. Without this rule: clients append 100 bytes each
		// while one appends 1 MB, which takes 50 ms longer on a slow line; each object of 1 MB is
		// overtaken; one in five is sent twice, and that takes as long again.
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

// run hands f to an idle worker, or to a new one. There are at most InFlight workers, and
// fewer are busy when run is called, so one of them will take f.
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
