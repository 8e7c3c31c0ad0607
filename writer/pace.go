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
	// guard:pace-stale. A large object takes at least as long as a small one. So if all objects take
	// less on average than small ones took, that is the usual latency. Without this rule: a request
	// takes 120 ms, and then the store recovers, and a request takes 10 ms; since then all objects have
	// 300 KiB or more, so the writer learns nothing from them; an object that waits beside one in
	// flight waits for 96 ms instead of 8 ms, for hours.
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
	// guard:pace-outlier. The writer keeps a mean of the store's latency; one sample counts as at
	// most twice this mean. Without this limit: a request usually takes 32 ms; one request, which
	// is not hedged, takes 20 s; the mean rises to 1.3 s; until 40 more samples have come, an
	// object that waits beside one in flight waits for 100 ms instead of 27 ms.
	//
	//mutant:replace min(took, max(2*p.latency, pacedFrom)) => took
	if p.samples > 0 {
		took = min(took, max(2*p.latency, pacedFrom))
	}
	// guard:pace-small. The writer's mean of the latency counts only small objects, since the time of
	// a large one depends on the bandwidth. Without this check: the writer appends 4 MiB at a time for a
	// while, and each object takes 2 s on a slow line; the mean is 2 s; the small objects after them
	// wait for up to 100 ms beside one in flight, although a small request takes 30 ms.
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
	// guard:pace-worth. Where all clients wait for one object after the other, the writer sends
	// every eighth as two equal requests at once, and takes the first answer. It does so only if by
	// its measurements the first of two answers comes earlier by more than a fifth of the latency.
	// Without this check: each request takes 28 ms; every eighth object is paid for twice, and is
	// answered after 28 ms nevertheless.
	//
	//mutant:replace p.saves <= p.latency/worth => false
	if p.saves <= p.latency/worth {
		return false
	}
	switch {
	case b.edit != nil && b.appends > 1:
		// guard:hedge-shared. Of the objects in which several commits of files share one edit,
		// three of four are sent twice at once. Without this rule: 16 clients write a file each and
		// commit it, again and again; half of the requests take 20 ms, the others 60 ms; each such
		// object takes 40 ms on average, while three of four could take 30 ms. Each commit pays for
		// at most two requests nevertheless: its file and its share of the object.
		//
		//mutant:replace p.shared%sharedOf != 0 => false
		p.shared++
		return p.shared%sharedOf != 0
	case alone && p.back > meanOf/2:
		// guard:hedge-alone. Where all clients wait for one object, each eighth such object is sent
		// twice at once. Without this rule: 16 clients wait for one object after the other; half of
		// the requests take 20 ms, the others 60 ms; no object overtakes another, so none is sent
		// again; each eighth round takes 40 ms on average, instead of 30 ms.
		//
		//mutant:replace p.alone%aloneOf == 0 => false
		p.alone++
		return p.alone%aloneOf == 0
	}
	return false
}

// part returns 1/n of the latency.
func (p *pace) part(n float64) time.Duration {
	// guard:pace-ceiling. While an object is in flight, the next one waits for a part of the usual
	// latency, to gather more records. It waits for at most 100 ms, or 250 ms if it waits for the
	// one in flight. Without this limit: each request takes 20 s, and one object is in flight; an
	// append that comes now is not even sent for 16 s.
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
	// guard:pace-stream. Where most clients append again at once, the writer waits for them as long
	// as they come quickly one after the other. It waits at most a quarter of the latency. Without this rule:
	// 1,000 clients wait for one object, which takes 32 ms; the processor is busy, so it takes 3 ms
	// until the last client has appended again; the next object is sent after 2 ms, without the
	// records of 300 clients, and these clients wait for two objects.
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
	if w.err != nil {
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
	// guard:pace-idle. Only while an object is in flight does the next one wait, to gather more
	// records: until a part of the usual latency has passed since the last object was sent. Without
	// this check: a request usually takes 30 ms; one request of a lone client is answered unusually
	// soon, after 1 ms, and the client appends again at once; the writer holds this append back for
	// another millisecond, although nothing is in flight, and no other record comes.
	//
	//mutant:replace w.inFlight > 0 => true
	if w.inFlight > 0 {
		// guard:pace-gap. While an object is in flight, the next one waits for a part of the usual
		// latency, and gathers more records. Without this wait: each of 400 clients appends one record
		// per second, and a request takes 32 ms; nearly each record gets an object and a request of
		// its own; each is acknowledged only after the slowest of a dozen requests in flight.
		//
		//mutant:replace max(at, p.sentAt.Add(gap)) => max(at, p.sentAt.Add(0*gap))
		gap := p.part(perLatency)
		// guard:pace-together. Where most clients append again as soon as they are acknowledged, the
		// next object waits for the one in flight, at most two latencies. Without this rule: 16 clients
		// append, and each request takes 30 ms; 4 of them come 1 ms after the others, and their object
		// is sent 24 ms after the first; each group waits for the other again and again, and each
		// client is acknowledged every 48 ms, instead of every 30 ms.
		//
		//mutant:replace p.back > meanOf/2 => false
		if p.back > meanOf/2 {
			gap = p.part(1. / together)
			// guard:pace-rest. Where most clients append again at once, an object waits for the one
			// in flight, so that all share one (guard pace-together). It does not wait for an
			// object that was sent because it was full, since not all records fit into one anyway.
			// Without this rule: 11 of 12 clients' records fill an object, and a request takes 32
			// ms; the others come a moment later, and their object is sent only when the full one
			// is answered; they are acknowledged every 47 ms, instead of every 39 ms.
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
	// guard:pace-gather. An object waits a moment for clients that were just acknowledged, because
	// they are likely to append again. Without this wait: 64 clients are acknowledged together; the
	// first one to append again gets an object of its own; the other 63 wait for the next object,
	// which is acknowledged only after the first. Flush ends the wait, because then its caller has
	// nothing more to append.
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
