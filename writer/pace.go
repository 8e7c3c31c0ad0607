package writer

import (
	"time"

	"github.com/fencepost/fencepost/clock"
)

// pace decides when the waiting batch may be sent although a request is free. Guarded by
// Writer.mu.
//
// Objects are acknowledged in order, so each one also waits for the slowest of those before
// it. Many small objects in flight therefore delay one another, and each is a request to be
// paid for. So the writer learns how long a request takes, its latency, and sends
// perLatency objects in that time. It also waits a moment for the clients that were just
// acknowledged: many append again at once, and then share one object. Where most do, the next
// object waits for the one in flight, so that all share one.
type pace struct {
	interval time.Duration // between requests on average, 0 if they are not bounded
	due      clock.Instant // of the next request, at the average rate

	latency time.Duration // of a small object: a running mean; 0 if none is known
	samples int           // in that mean, up to meanOf
	last    time.Duration // the last sample
	// all is such a mean of all objects, from the first small one on. A large object takes no less than
	// a small one. So all is clearly less than latency only if there were few small ones of late.
	all time.Duration
	// saves is how much sooner the first of two requests is answered than one alone, on average:
	// a running mean. For independent times, that is half of the mean difference of two of them.
	saves time.Duration
	// alone and shared are how many objects were worth two requests: of those for which all
	// clients waited, and of those with several edits.
	alone, shared int
	sentAt        clock.Instant // when the last object was sent; only kept while paced
	// absent is how many of the appends that were acknowledged last have no successor yet.
	// Those are awaited until gather.
	absent int
	// While they come quickly one after the other, gather moves on, but not past latest.
	gather, latest clock.Instant
	// awaited is how many were acknowledged in that lot, 0 if it is known whether half of them
	// came before gather. back counts the lots for which this was so, up to meanOf, less the others.
	awaited, back int

	wake   clock.Timer // wakes the dispatcher, nil if it is not needed
	wakeAt clock.Instant
}

const (
	// pacedFrom is the latency from which objects are paced. Where a request takes less,
	// timers would cost more than they save.
	pacedFrom = time.Millisecond
	// perLatency is how many objects are sent in the time that one takes. bench/pacing_test.go
	// measures it: with fewer, records wait longer to be sent. With more, they wait longer
	// for the objects before them where latencies vary, and more requests are paid for. At
	// S3's latencies 1.4 is as fast as 1.25, and needs a tenth more requests.
	perLatency = 1.25
	// together is in how many latencies an object is sent, at least, where most clients append
	// again at once.
	together = 2
	// gatherPart is the part of the latency for which the next append of a client that was
	// acknowledged is awaited.
	gatherPart = 16
	// latestPart is the part of the latency for which such appends are awaited at most, as long as
	// no streamPart of it passes without one. With a longer streamPart, clients that take their time
	// hold up those that do not.
	latestPart, streamPart = 4, 32
	// slowest is the longest latency that is believed. With it the next object is sent at
	// most slowest/perLatency = 100 ms after the last one, or slowest*together = 250 ms.
	slowest = 125 * time.Millisecond
	// small is the size, in bytes, below which the time of an object is the latency. The time of a
	// larger one depends on the bandwidth too.
	small = 256 << 10
	// bulkRate, in bytes a second, times the latency is the size from which an object is sent at once
	// and is not hedged: 1.4 MB where a request takes 28 ms. On a line of 100 MB/s the bytes of such an
	// object take half of the latency. Several smaller ones would hardly be faster, and each would wait
	// for the slowest: bench/pacing_test.go. The size is never below small.
	bulkRate = 50e6
	// meanOf is how many samples the mean remembers, roughly.
	meanOf = 16
	// worth is the part of the latency that a second request has to save, for an object to be sent
	// twice at once. At S3's latencies it saves a third.
	worth = 5
	// aloneOf is how many objects share one that is sent twice at once. With fewer, clients that
	// wait are acknowledged sooner, and more requests are paid for: bench/pacing_test.go.
	aloneOf = 8
	// sharedOf is how many objects with several edits share one that is not sent twice at once.
	// From that one the writer goes on learning.
	sharedOf = 4
	// burst is for a program that appends 1,000 records in a row: the first one is sent alone.
	// If more than burst times as many records wait as are in flight, the next object waits only
	// as long as clients are awaited, and not for its part of the latency.
	burst = 4
)

func newPace(o *Options) pace {
	now := o.Clock.Now()
	p := pace{due: now, sentAt: now, gather: now}
	if o.RequestsPerSecond > 0 {
		p.interval = time.Duration(float64(time.Second) / o.RequestsPerSecond)
	}
	return p
}

// next is when a request may be sent. The rate is an average: after a pause, requests may be
// a second ahead of it.
func (p *pace) next() clock.Instant { return p.due.Add(-max(time.Second-p.interval, 0)) }

// keeps reports whether the pace needs to know when objects are sent.
func (p *pace) keeps() bool { return p.interval > 0 || p.learned() }

// learned reports whether objects are paced by the latency.
func (p *pace) learned() bool { return p.usual() >= pacedFrom }

// usual returns the latency by which objects are paced; 0 if none is known.
func (p *pace) usual() time.Duration {
	// tuning:pace-stale. If all objects take less on average than small ones took, that is the usual
	// latency.
	//
	//mutant:replace min(p.latency, p.all) => p.latency
	return min(p.latency, p.all)
}

// sent counts a request.
func (p *pace) sent(now clock.Instant) {
	p.sentAt = now
	if p.interval > 0 {
		p.due = max(p.due, now).Add(p.interval)
	}
}

// learn adds a sample to the latency: an object of so many bytes took so long.
func (p *pace) learn(took time.Duration, size int) {
	if p.samples == 0 && size >= small {
		return
	}
	// tuning:pace-outlier. The writer keeps a mean of the store's latency; one sample counts as at most
	// twice this mean.
	//
	//mutant:replace min(took, max(2*p.latency, pacedFrom)) => took
	if p.samples > 0 {
		took = min(took, max(2*p.latency, pacedFrom))
	}
	// tuning:pace-small. The writer's mean of the latency counts only small objects, since the time of
	// a large one depends on the bandwidth.
	//
	//mutant:replace size < small => true
	if size < small {
		if p.samples > 0 {
			p.saves += ((took-p.last).Abs()/2 - p.saves) / time.Duration(p.samples)
		}
		p.last = took
		p.samples = min(p.samples+1, meanOf)
		p.latency += (took - p.latency) / time.Duration(p.samples)
		p.all += (took - p.all) / time.Duration(p.samples)
		return
	}
	p.all += (took - p.all) / meanOf
}

// twice reports whether b is sent twice at once. alone says that nothing else is in flight.
func (p *pace) twice(b *batch, alone bool) bool {
	// tuning:pace-worth. The writer sends an object twice at once only if, by its measurements, the
	// first of two answers comes earlier by more than a fifth of the latency.
	//
	//mutant:replace p.saves <= p.latency/worth => false
	if p.saves <= p.latency/worth {
		return false
	}
	switch {
	case b.edit != nil && b.appends > 1:
		// tuning:hedge-shared. Of the objects in which several commits of files share one edit, three
		// of four are sent twice at once.
		//
		//mutant:replace p.shared%sharedOf != 0 => false
		p.shared++
		return p.shared%sharedOf != 0
	case alone && p.back > meanOf/2:
		// tuning:hedge-alone. Where all clients wait for one object, each eighth such object is sent
		// twice at once.
		//
		//mutant:replace p.alone%aloneOf == 0 => false
		p.alone++
		return p.alone%aloneOf == 0
	}
	return false
}

// part returns 1/n of the latency.
func (p *pace) part(n float64) time.Duration {
	// tuning:pace-ceiling. An object waits beside one in flight for at most 100 ms, or 250 ms if it
	// waits for the one in flight.
	//
	//mutant:replace min(p.usual(), slowest) => p.usual()
	return time.Duration(float64(min(p.usual(), slowest)) / n)
}

// bulk returns the size, in bytes, from which an object is sent at once, and not hedged.
func (p *pace) bulk() int { return max(small, int(p.part(1).Seconds()*bulkRate)) }

// acknowledged notes that a number of appends were acknowledged: as many are likely to come.
func (p *pace) acknowledged(appends int, now clock.Instant) {
	if appends == 0 || !p.learned() {
		return
	}
	if now >= p.gather {
		if p.awaited > 0 {
			p.came(false)
		}
		p.absent = 0 // they did not come
	}
	p.absent += appends
	p.awaited += appends
	p.gather, p.latest = now.Add(p.part(gatherPart)), now.Add(p.part(latestPart))
}

// append counts an append. It reports whether it was the last one that was awaited.
func (p *pace) append(c clock.Clock) bool {
	if p.absent == 0 {
		return false
	}
	p.absent--
	now := c.Now()
	inTime := now < p.gather
	if p.awaited > 0 && p.absent <= p.awaited/2 {
		p.came(inTime)
	}
	// tuning:pace-stream. Where most clients append again at once, the writer waits for them while they
	// come quickly, but at most a quarter of the latency.
	//
	//mutant:replace p.back > meanOf/2 => false
	if inTime && p.back > meanOf/2 {
		p.gather = max(p.gather, min(now.Add(p.part(streamPart)), p.latest))
	}
	return p.absent == 0
}

// came notes whether half of a lot came in time.
func (p *pace) came(inTime bool) {
	p.awaited = 0
	if inTime {
		p.back = min(p.back+1, meanOf)
	} else {
		p.back = max(p.back-1, 0)
	}
}

// ripe reports whether the waiting batch need not wait for more appends or for the rate of
// requests. If it has to, a timer wakes the dispatcher in time. Called with mu held.
func (w *Writer) ripe() bool {
	if w.opts.Linger == 0 && !w.pace.keeps() {
		return true
	}
	if w.life.err != nil {
		return true // the writer is closing: this is its last object
	}
	now := w.opts.Clock.Now()
	at := now
	if w.pace.interval > 0 {
		at = max(at, w.pace.next())
	}
	if w.opts.Linger > 0 && !w.waiting.hurry {
		at = max(at, w.waiting.begun.Add(w.opts.Linger))
	}
	if w.pace.learned() && !w.waiting.full && w.waiting.Size() < w.pace.bulk() {
		at = max(at, w.paced(now))
	}
	if at == now {
		return true
	}
	w.wake(at, now)
	return false
}

// paced returns when the waiting batch may be sent at the pace of the latency, or when to ask
// again. Called with mu held.
func (w *Writer) paced(now clock.Instant) clock.Instant {
	p, at := &w.pace, now
	// tuning:pace-idle. Only while an object is in flight does the next one wait, to gather more
	// records: until a part of the usual latency has passed since the last object was sent.
	//
	//mutant:replace w.inFlight > 0 => true
	if w.inFlight > 0 {
		// tuning:pace-gap. While an object is in flight, the next one waits for a part of the usual
		// latency, and gathers more records.
		//
		//mutant:replace max(at, p.sentAt.Add(gap)) => max(at, p.sentAt.Add(0*gap))
		gap := p.part(perLatency)
		// tuning:pace-together. Where most clients append again as soon as they are acknowledged, the
		// next object waits for the one in flight, at most two latencies.
		//
		//mutant:replace p.back > meanOf/2 => false
		if p.back > meanOf/2 {
			gap = p.part(1. / together)
			// tuning:pace-rest. An object does not wait for one in flight that was sent because it was
			// full, since not all records fit into one anyway.
			//
			//mutant:replace w.last.full => false
			if w.last.full {
				gap = p.part(gatherPart)
			}
		}
		if soon := p.part(gatherPart); now < p.sentAt.Add(soon) || uint64(w.waiting.Records()) > burst*(w.offset-w.acked.Offset) {
			gap = soon // then look whether it is a burst
		}
		at = max(at, p.sentAt.Add(gap))
	}
	// tuning:pace-gather. An object waits a moment for clients that were just acknowledged, because
	// they are likely to append again.
	if p.absent > 0 && !w.waiting.hurry {
		at = max(at, p.gather)
	}
	return at
}

// wake wakes the dispatcher at that time. Called with mu held.
func (w *Writer) wake(at, now clock.Instant) {
	if w.pace.wake != nil && w.pace.wakeAt == at {
		return
	}
	w.stopWake()
	w.pace.wakeAt = at
	w.pace.wake = w.opts.Clock.AfterFunc(at.Sub(now), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.pace.wakeAt == at {
			w.pace.wake = nil
		}
		w.changed.Broadcast()
	})
}

// stopWake stops the timer of wake. Called with mu held.
func (w *Writer) stopWake() {
	if w.pace.wake != nil {
		w.pace.wake.Stop()
		w.pace.wake = nil
	}
}
