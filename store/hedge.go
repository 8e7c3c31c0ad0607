package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Hedge lets [Create] send a request a second time when the first is late. It shortens
// the longest times of many creates. The outcomes of Create stay the same.
//
// Late means later than the Quantile of the last requests; a Hedge measures them. Overtaken
// means that the caller says so: see [WriteOptions]. At most one create in 20 is sent twice
// because it is late, and one in 5 because it is overtaken, so that a slow store is not made
// much slower. Requests that the caller counts in Others earn as much. The second requests of
// creates of 256 KiB or more have at most 5 % of the bytes of all creates for the first reason, and
// 20 % for the second.
//
// The second request has the same bytes and the same key, so one of the two creates the
// object and the other finds its equal there. Create reads the key at the same time. If
// the first request has landed and only its answer is late, the read is the shortest way
// to know. As soon as the outcome is certain, Create cancels the rest. A cancelled
// request may still land, and finds the key occupied.
//
// A Hedge is safe for concurrent use: one serves all creates that take similar times.
type Hedge struct {
	// Quantile of the times that are not late, from 0.5 to less than 1. With 0.96 most of
	// the budget is used. Another value makes Create return [ErrInvalid].
	Quantile float64
	// Others counts other requests of the caller, such as uploads of files: add 1 for each. They
	// earn second requests as creates do.
	Others atomic.Int64

	mu sync.Mutex
	// times of the last first requests; a ring as soon as it has hedgeMemory of them. It grows, since a
	// process may have thousands of hedges that measure little.
	times []time.Duration
	n     int           // how many were measured in all
	late  time.Duration // the quantile of times, when it was computed last
	// saved is what second requests can be taken from, for each reason: each create earns one,
	// and a second request costs as many as hedgeCost says.
	saved [2]int
	// bytes is the same in bytes: each create earns its size. Only large ones cost any.
	bytes [2]int64
}

// reason is why a create is sent twice.
type reason int

const (
	late reason = iota
	overtaken
)

// hedgeCost is how many creates earn one second request. Late creates are few, and the second
// request shortens the longest times. An overtaken create holds up others, so sending it again
// shortens usual times too. bench/pacing_test.go measures what it gains.
var hedgeCost = [...]int{late: 20, overtaken: 5}

const (
	// hedgeBurst is how many second requests can be saved up.
	hedgeBurst = 8
	// hedgeLarge is the size in bytes from which a second request costs bytes too.
	hedgeLarge = 256 << 10
	// hedgeMemory is how many times are kept. The quantile is computed after every
	// hedgeEvery of them, as soon as there are enough.
	hedgeMemory = 512
	hedgeEvery  = 32
)

// validate checks the quantile. Nil is valid.
func (h *Hedge) validate() error {
	if h != nil && !(h.Quantile >= 0.5 && h.Quantile < 1) {
		return fmt.Errorf("%w: Hedge.Quantile is %v; it must be at least 0.5 and less than 1", ErrInvalid, h.Quantile)
	}
	return nil
}

// delay is how long to wait for the first answer; 0 if that is not known yet.
func (h *Hedge) delay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.late
}

// take takes a second request of that size in bytes from the budget, if there is one.
func (h *Hedge) take(why reason, size int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.earn(int(h.Others.Swap(0)))
	// tuning:hedge-budget. Of 20 requests at most one is sent twice because it is late, and four
	// because a later one overtakes them.
	if h.saved[why] < hedgeCost[why] {
		return false
	}
	if size >= hedgeLarge {
		cost := int64(hedgeCost[why]) * int64(size)
		h.bytes[why] = min(h.bytes[why], hedgeBurst*cost)
		// tuning:hedge-bytes. Of the bytes of all creates, at most one in 20 is sent again because a
		// large create is late, and one in five because one is overtaken.
		if h.bytes[why] < cost {
			return false
		}
		h.bytes[why] -= cost
	}
	h.saved[why] -= hedgeCost[why]
	return true
}

// earn adds what n requests earn, besides their bytes. Called with mu held.
func (h *Hedge) earn(n int) {
	for why, cost := range hedgeCost {
		h.saved[why] = min(h.saved[why]+n, hedgeBurst*cost)
	}
}

// measure records how long a create of that size took. If the second request was answered first that is
// less than the first would have taken. The quantile is still right: it is the time after
// which so few creates are not answered.
func (h *Hedge) measure(d time.Duration, size int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.earn(1)
	for why := range h.bytes {
		h.bytes[why] += int64(size)
	}
	switch {
	case h.times == nil:
		h.times = append(make([]time.Duration, 0, hedgeEvery), d)
	case len(h.times) < hedgeMemory:
		h.times = append(h.times, d)
	default:
		h.times[h.n%hedgeMemory] = d
	}
	if h.n++; h.n%hedgeEvery != 0 {
		return
	}
	n := len(h.times)
	sorted := slices.Clone(h.times)
	slices.Sort(sorted)
	// If there are too few to tell, it waits for more.
	if i := int(math.Ceil(h.Quantile * float64(n))); i < n || n == hedgeMemory {
		h.late = sorted[min(i, n-1)] + 1
	}
}

// put sends a request, and a second one if the first is late. It returns what is known of
// both together, and how many there were, when all have ended. The cases:
//
//   - The first has landed and its answer is late: the read finds its bytes. If the read
//     comes too early it finds nothing; then an answer tells.
//   - One lands, the other finds its equal there and gets 412. If the 412 comes first, the
//     key is read again while the other request is in flight.
//   - One is lost, the other lands: applied. If the lost one lands a month later it finds
//     its equal, or the slot was folded and pruned and nobody reads it.
//   - Both are lost: unknown. Create finds nothing and sends the same bytes a third time,
//     so both lost requests will find their equal.
//   - A successor's seal was there before both: they get 412, or the read finds the seal.
//   - The seal comes between the two: then one of them was there before the seal, so the
//     seal itself was refused, and the writer is not fenced in this slot.
func (h *Hedge) put(ctx context.Context, w *write) (reply, int) {
	start := w.Clock.Now()
	r, n := h.race(ctx, w)
	if r.outcome == Applied { // the time of anything else is no measure
		h.measure(w.Clock.Now().Sub(start), len(w.body))
	}
	return r, n
}

// race makes the first request itself and leaves the rest to a referee. A request needs a deep stack, and
// that of the caller has grown already if it has made one before.
func (h *Hedge) race(ctx context.Context, w *write) (reply, int) {
	delay := h.delay()
	if delay <= 0 {
		return w.request(ctx), 1
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &referee{hedge: h, write: w, replies: make(chan reply, 2)}
	var first sync.WaitGroup
	first.Go(func() { r.judge(ctx, cancel, delay) })
	r.replies <- w.request(ctx)
	first.Wait()
	return r.verdict, r.requests
}

// referee decides between the requests of one create.
type referee struct {
	hedge   *Hedge
	write   *write
	replies chan reply // of both requests
	// What is known of both, and how many there were.
	verdict  reply
	requests int
}

// judge waits for the first request, and sends the second one if it is time. When the verdict is there it
// cancels the rest, and ends with what it has begun: then the caller may reuse the body.
func (r *referee) judge(ctx context.Context, cancel func(), delay time.Duration) {
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	r.requests = 1
	if !r.wait(ctx, delay) {
		return
	}
	r.requests = 2
	reads := make(chan object, 2)
	read := func() { found, _ := r.write.check(ctx); reads <- found }
	all.Go(func() { r.replies <- r.write.request(ctx) })
	all.Go(read)
	var first *reply
	for {
		select {
		case found := <-reads:
			// guard:hedge-look. The read of a late create decides its outcome only if it finds an
			// object, own or another's.
			//
			//mutant:replace found.finding == own || found.finding == foreign => true
			if found.finding == own || found.finding == foreign {
				r.verdict = found.reply()
				return
			}
		case got := <-r.replies:
			if first != nil {
				r.verdict = both(*first, got)
				return
			}
			first = &got
			switch got.outcome {
			case Applied:
				r.verdict = got
				return
			case Refused, Unknown:
				// tuning:hedge-again. If one of the two requests of a late create gets 412 or loses its
				// answer, the key is read again, since the other may hang.
				if ctx.Err() == nil {
					all.Go(read)
				}
			case Rejected:
			}
		}
	}
}

// wait returns true as soon as the create has to be sent twice, and false if it was answered before; then
// the verdict is there.
func (r *referee) wait(ctx context.Context, delay time.Duration) bool {
	due := make(chan struct{})
	timer := r.write.Clock.AfterFunc(delay, func() { close(due) })
	defer timer.Stop()
	for passed := r.write.overtaken; ; {
		why := late
		select {
		case r.verdict = <-r.replies:
			return false
		case <-due:
			due = nil
		case <-passed:
			passed, why = nil, overtaken
		}
		if ctx.Err() == nil && r.hedge.take(why, len(r.write.body)) {
			return true
		}
	}
}

// reply is what the bytes under the key say of the requests.
func (o object) reply() reply {
	if o.finding == own {
		return reply{info: o.Info, outcome: Applied}
	}
	return reply{outcome: Refused, found: o}
}

// both is what two replies to equal requests tell together.
func both(a, b reply) reply {
	// guard:hedge-applied. A create that was sent twice is applied if one of its two requests was
	// applied, whatever became of the other.
	//
	//mutant:replace Applied, Refused, Unknown => Unknown, Refused, Applied

	// guard:hedge-rejected. A create that was sent twice is rejected only if both requests were
	// rejected.
	//
	//mutant:replace Applied, Refused => Rejected, Applied, Refused
	for _, outcome := range []Outcome{Applied, Refused, Unknown} {
		for _, r := range []reply{a, b} {
			if r.outcome == outcome {
				return r
			}
		}
	}
	return a
}
