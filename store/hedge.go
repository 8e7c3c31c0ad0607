package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// Hedge shortens the longest times of a row of creates: when the first request of
// one has had no answer for longer than most take, the same bytes are sent to the
// same key a second time. What is late is measured, and at most one in
// [HedgeBudget] is sent twice, so that a slow store is not made slower.
//
// It changes nothing of what [Create] returns. Of the two requests one creates the
// object and the other finds its equal there. Beside the second one the key is read:
// where the first has landed already and only its answer is late, that is the shortest
// way to know, and its second would be told no more than 412, which has to be looked
// into in any case. As soon as it is certain what is under the key, everything else is
// broken off; like any request whose sender has given up it may still land, and finds
// its equal, or whatever took the slot.
//
// It is safe for concurrent use: one Hedge serves all creates whose times are
// alike.
type Hedge struct {
	quantile float64

	mu     sync.Mutex
	times  [hedgeMemory]time.Duration // of the last first requests, in a ring
	n      int                        // how many were measured at all
	late   time.Duration              // the quantile of times, when it was last computed
	tokens int                        // a second request takes HedgeBudget of them
}

const (
	// HedgeBudget is how many creates there are to one that is sent a second time, at
	// least: 5 % more requests at most.
	HedgeBudget = 20
	// hedgeBurst is how many second requests are saved for bad times.
	hedgeBurst = 8
	// hedgeMemory is how many times count; the quantile is computed anew once every
	// hedgeEvery of them, first when there are enough to tell what is late.
	hedgeMemory = 512
	hedgeEvery  = 32
)

// NewHedge returns a Hedge that calls a request late when it takes longer than the
// given quantile of the last ones, from 0.5 to below 1; 0.96 makes good use of the
// budget. Another one is [ErrInvalid].
func NewHedge(quantile float64) (*Hedge, error) {
	if !(quantile >= 0.5 && quantile < 1) {
		return nil, fmt.Errorf("%w: a hedge at quantile %v; it must be at least 0.5 and less than 1", ErrInvalid, quantile)
	}
	return &Hedge{quantile: quantile}, nil
}

// delay is how long to wait for the first answer, 0 if that is not known yet.
func (h *Hedge) delay() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.late
}

// take asks the budget for a second request.
func (h *Hedge) take() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	// guard:hedge-budget. When the store is slow all requests are late.
	if h.tokens < HedgeBudget {
		return false
	}
	h.tokens -= HedgeBudget
	return true
}

// measure notes how long a first request took. If it was broken off because the
// second was answered, that is too short, but still longer than late, and so
// the quantile comes out right.
func (h *Hedge) measure(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens = min(h.tokens+1, hedgeBurst*HedgeBudget)
	h.times[h.n%hedgeMemory] = d
	if h.n++; h.n%hedgeEvery != 0 {
		return
	}
	n := min(h.n, hedgeMemory)
	sorted := slices.Clone(h.times[:n])
	slices.Sort(sorted)
	if i := int(math.Ceil(h.quantile * float64(n))); i < n { // else there are too few to tell
		h.late = sorted[i] + 1
	}
}

// reply is what became of one request.
type reply struct {
	info Info
	err  error
	// taken is set if a look has shown another's object, and by nothing else: an error
	// may wrap a conflict that is the reason why the caller has given up.
	taken *ConflictError
}

// hedged is a create that can be sent twice.
type hedged struct {
	// send makes one request.
	send func(context.Context) reply
	// look reads the key. No error: own bytes are there; taken: others are; anything
	// else says nothing.
	look func(context.Context) reply
}

// put sends a request, and a second one if that is late, and returns what is known
// of both together, and how many there were. It returns when all are over.
//
// What the store may see, and what [Create] makes of it:
//
//   - The first has landed and its answer is late: the look finds own bytes. It finds
//     nothing if it comes too early, and then the answer or the second request tells.
//   - One lands, the other finds its equal. If the 412 comes first the key is read
//     again, beside the request that is still under way: whichever is first.
//   - One is lost, the other lands: applied. The lost one lands a month later: its
//     equal is there, or was folded and pruned, and then nobody looks there.
//   - Both are lost: unknown. The key is read, nothing is there, and the same bytes
//     are sent a third time, so that both of the lost ones will find their equal.
//   - A successor's seal is there before both: 412, or the look finds it. The requests
//     are broken off; when they land they find the seal.
//   - The seal comes between them: one of the two was there before it, so the seal
//     itself was refused, and the writer is not fenced in this slot.
func (h *Hedge) put(ctx context.Context, c clock.Clock, create hedged) (reply, int) {
	start := c.Now()
	r, n := h.race(ctx, c, create)
	if r.err == nil { // the time of an error is no measure
		h.measure(c.Now().Sub(start))
	}
	return r, n
}

func (h *Hedge) race(ctx context.Context, c clock.Clock, create hedged) (reply, int) {
	delay := h.delay()
	if delay <= 0 {
		return create.send(ctx), 1
	}
	var all sync.WaitGroup
	defer all.Wait() // the body is the caller's again
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	replies, looks := make(chan reply, 2), make(chan reply, 2)
	run := func(f func(context.Context) reply, to chan<- reply) { all.Go(func() { to <- f(ctx) }) }
	late := make(chan struct{})
	timer := c.AfterFunc(delay, func() { close(late) })
	defer timer.Stop()
	run(create.send, replies)
	select {
	case r := <-replies:
		return r, 1
	case <-late:
	}
	if ctx.Err() != nil || !h.take() {
		return <-replies, 1
	}
	run(create.send, replies)
	run(create.look, looks)
	var first *reply
	for {
		select {
		case found := <-looks:
			// guard:hedge-look. Bytes are certain, own ones or others. That there are
			// none, or that the read failed, is not: a request is still under way.
			//
			//mutant:replace found.certain() => true
			if found.certain() {
				return found, 2
			}
		case r := <-replies:
			if first != nil {
				return both(*first, r), 2
			}
			first = &r
			switch OutcomeOf(r.err) {
			case Applied:
				return r, 2
			case Refused, Unknown:
				// guard:hedge-again. By its equal, or by a seal; or only the answer was lost. The
				// other request may hang.
				if ctx.Err() == nil {
					run(create.look, looks)
				}
			}
		}
	}
}

// certain tells whether a look has found bytes.
func (r *reply) certain() bool { return r.err == nil || r.taken != nil }

// both is what two replies to equal requests tell together.
func both(a, b reply) reply {
	// guard:hedge-applied. One request created the object, so the write is applied,
	// and what the other was answered is its echo.
	//
	//mutant:replace Applied, Refused, Unknown => Unknown, Refused, Applied

	// guard:hedge-rejected. The write is turned away only if both requests were.
	//
	//mutant:replace Applied, Refused => Rejected, Applied, Refused
	for _, outcome := range []Outcome{Applied, Refused, Unknown} {
		for _, r := range []reply{a, b} {
			if OutcomeOf(r.err) == outcome {
				return r
			}
		}
	}
	return a
}
