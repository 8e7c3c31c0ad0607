package sim

import (
	"cmp"
	"context"
	"hash"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
)

// world is the state of one history.
type world struct {
	plan    Plan
	dice    *dice
	bucket  bucket
	now     time.Duration // simulated time since origin
	nodes   []*node
	history *history
	holds   *holds
	log     *state.Log // for world.names
	closing bool
	token   fence.Epoch // last epoch given to a writer without an election
	ctoken  fence.Epoch // the same for compactors

	mu      sync.Mutex // guards fresh, the clocks' timers, request.gone, node.dead
	fresh   []*request
	pending []*request // in the order in which settle noted them
	past    []*request // writes that have taken effect
	late    []*request // writes that may still take effect, and no client waits for them
	locks   []lock
	wins    int // number of elections
	winners map[lock]*node
	given   memory
	count   Counts         // of what the history and the acts do not tell
	numbers map[string]int // of requests with equal names
	steps   int
	acts    []act
	trace   hash.Hash64
	entry   []byte           // last entry of the trace
	story   *strings.Builder // nil: no story wanted
}

// scheduler chooses the acts of a history. next returns false at the end of the acts.
type scheduler interface {
	next(w *world) (act, bool)
}

// Result is the result of a history.
type Result struct {
	Plan Plan
	// Trace is a hash of all acts and their results.
	Trace uint64
	Counts
	// Err joins the promises that were broken, as [BrokenError]s. nil: none.
	Err error
	// Story tells what happened, if it was asked for.
	Story string

	acts  []act
	wrong []error
}

// Counts says how much happened.
type Counts struct {
	// Steps counts the acts, Faults those that are faults.
	Steps, Faults int
	// Acked, Never and Maybe count acknowledged, refused and unknown records.
	Acked, Never, Maybe int
	// Edits counts acknowledged edits. Looks counts reads of tables and snapshots. Held
	// counts pins, Taken those of them that expired. Swept counts deleted files, Hedged
	// slots that were sent twice at once.
	Edits, Looks, Held, Taken, Swept, Hedged int
	// Given counts truncated records. Pages counts the pages of listings after the first.
	Given, Pages int
}

// run makes one history in its own bubble.
func run(t *testing.T, p Plan, s func(*world) scheduler, tell bool) *Result {
	t.Helper()
	return runWith(t, p, &Scenario{nodes: p.people}, s, tell)
}

func runWith(t *testing.T, p Plan, sc *Scenario, s func(*world) scheduler, tell bool) *Result {
	t.Helper()
	tame()
	format := p.format() // outside the bubble: it is made once, with real time
	w := newWorld(p, format)
	if tell {
		w.story = &strings.Builder{}
	}
	synctest.Test(t, func(*testing.T) {
		if sc.setup != nil {
			sc.setup(w, w.direct("setup"))
		}
		sc.nodes(w)
		how := s(w)
		w.main(how)
		if x, ok := how.(interface{ abandoned() bool }); ok && x.abandoned() {
			w.drop()
			return
		}
		w.calm()
		w.finish()
	})
	res := &Result{Plan: p, Trace: w.trace.Sum64(), Counts: w.count, acts: w.acts}
	res.Steps, res.Swept = w.steps, len(w.holds.swept)
	w.history.count(&res.Counts)
	for _, a := range w.acts {
		if a.kind.fault() {
			res.Faults++
		}
	}
	w.history.swept = w.holds.swept
	res.Err = w.history.check()
	res.wrong = w.history.wrong
	if w.story != nil {
		res.Story = w.story.String()
	}
	return res
}

func newWorld(p Plan, format []byte) *world {
	w := &world{
		plan: p, dice: newDice(p), history: &history{}, numbers: map[string]int{}, trace: fnv.New64a(),
		holds: &holds{byKey: map[string]*hold{}, last: map[*node]*hold{}, swept: map[string]int{}}, given: memory{decoded: map[*byte]*state.Manifest{}}, winners: map[lock]*node{},
		bucket: bucket{objects: map[string]*object{}, content: p.Content, careless: p.Careless, resolution: p.Resolution, bend: bends[p.Bent]},
	}
	w.bucket.pinned, w.bucket.deleted = w.pinned, w.deleted
	w.bucket.put(&request{op: "put", key: "format.json", body: format}, 0)
	return w
}

// settle waits until every goroutine is blocked, and notes the new requests.
func (w *world) settle() {
	for synctest.Wait(); w.receive(); synctest.Wait() {
		// The goroutines of a dead node run on for a moment after their answers.
	}
}

// receive notes the new requests. It returns true if it answered one of a dead node.
func (w *world) receive() (answered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Sort by name. The order of arrival depends on the Go scheduler. That also decides
	// whether a request is sent that its caller cancels at the same moment; count it as
	// not sent.
	slices.SortStableFunc(w.fresh, func(x, y *request) int {
		return cmp.Or(strings.Compare(x.id, y.id), cmp.Compare(x.from, y.from), strings.Compare(x.key, y.key))
	})
	if w.askTwins() {
		return true
	}
	for _, r := range w.fresh {
		switch {
		case r.gone:
			continue
		case r.node.dead:
			answered = true
			r.answer(crashed(r))
			continue
		}
		w.numbers[r.id]++
		r.id += " #" + strconv.Itoa(w.numbers[r.id])
		r.since = w.steps
		if w.plan.Explored {
			r.tag = mix(str(r.id), r.node.knows, r.node.fetched)
		}
		if w.plan.Hedge > 0 && slices.ContainsFunc(w.pending, func(o *request) bool { return o.node == r.node && o.key == r.key && o.op == "put" && !o.gone }) {
			w.count.Hedged++
		}
		w.pending = append(w.pending, r)
	}
	w.fresh = w.fresh[:0]
	waits := func(r *request) bool { return r.node.dead && !r.gone }
	for i := slices.IndexFunc(w.pending, waits); i >= 0; i = slices.IndexFunc(w.pending, waits) {
		answered = true
		w.hush(w.pending[i].node)
	}
	// A caller that gives up does not undo its request: a write may still land.
	w.pending = slices.DeleteFunc(w.pending, func(r *request) bool {
		if !r.gone {
			return false
		}
		if r.landed == 0 && !r.reads() && !r.step() {
			w.late = append(w.late, r)
		}
		return true
	})
	return answered
}

// askTwins finds equal requests of one node for the same manifest, and asks their
// goroutines to repeat them with a callers hash. It reports whether there were any. fresh
// must be sorted, and the caller holds mu.
func (w *world) askTwins() (asked bool) {
	same := func(i, j int) bool { return j < len(w.fresh) && w.fresh[i].id == w.fresh[j].id }
	var rest []*request
	for i, r := range w.fresh {
		unknown := r.from == 0 && r.reads() && strings.HasPrefix(r.key, layout.ManifestPrefix) && !r.gone && !r.node.dead
		if unknown && (same(i, i+1) || i > 0 && same(i-1, i)) {
			asked = true
			r.answer(reply{err: errTwin})
			continue
		}
		rest = append(rest, r)
	}
	if asked {
		w.fresh = rest
	}
	return asked
}

func (w *world) main(s scheduler) {
	for {
		w.settle()
		a, ok := s.next(w)
		if !ok {
			return
		}
		if !w.resolve(&a) {
			continue
		}
		w.acts = append(w.acts, act{kind: a.kind, on: a.on, n: a.n})
		w.perform(a)
	}
}

// note adds an act to the trace and to the story.
func (w *world) note(a act, outcome string) {
	w.entry = append(w.entry[:0], byte(a.kind), byte(a.n), byte(a.n>>8))
	w.entry = append(append(w.entry, a.on...), outcome...)
	_, _ = w.trace.Write(w.entry)
	w.tell(a, outcome)
}

func (w *world) alive(name string) *node {
	for _, n := range w.nodes {
		if n.name == name && !n.dead {
			return n
		}
	}
	return nil
}

// next returns the node whose timer is due first, or nil.
func (w *world) next() (first *node) {
	var soonest time.Duration
	for _, n := range w.nodes {
		if n.dead && !w.closing || n.done.Load() || n.paused {
			continue // a dead node's timers do not matter until its goroutines must end
		}
		if at, ok := n.clock.next(w.now); ok && (first == nil || at < soonest) {
			first, soonest = n, at
		}
	}
	return first
}

// ordinary returns the next act of a run without faults. The oldest request is applied
// and answered. If there is none, the next timer fires.
func (w *world) ordinary() (act, bool) {
	for _, r := range w.pending {
		switch {
		case r.node.paused:
		case r.landed > 0:
			return onRequest(deliver, r), true
		default:
			return onRequest(apply, r), true
		}
	}
	if n := w.next(); n != nil {
		return onNode(tick, n, 0), true
	}
	return act{}, false
}

// Limits of the calm phase. A node that has not ended by then is stuck. A compactor whose
// listings have one or two names per page makes thousands of requests before other nodes'
// timers are due.
const (
	calmActs  = 150
	leaveActs = 20_000
)

// calm ends the history in good order: there are no more faults, and the nodes end one
// after the other.
func (w *world) calm() {
	w.closing = true
	for _, n := range w.nodes {
		n.paused = false
		n.clock.set(w.now, 0, 1000)
	}
	w.tellf("all", "no more faults from here on; all nodes end")
	w.orderly(calmActs, w.settled)
	for _, n := range w.nodes {
		if n.done.Load() {
			continue
		}
		n.end(context.Canceled)
		if !w.orderly(leaveActs, func() bool { return n.done.Load() }) {
			w.history.broken("stuck", "%s does not end", n.name)
			w.mu.Lock()
			n.dead = true
			w.hush(n)
			w.mu.Unlock()
			w.orderly(leaveActs, func() bool { return n.done.Load() })
		}
	}
	w.orderly(leaveActs, func() bool { return len(w.pending) == 0 })
}

// drop ends a history whose result is not needed.
func (w *world) drop() {
	w.closing = true
	for _, n := range w.nodes {
		n.die()
	}
	w.orderly(leaveActs, func() bool {
		return !slices.ContainsFunc(w.nodes, func(n *node) bool { return !n.done.Load() })
	})
}

// orderly performs ordinary acts until done returns true.
func (w *world) orderly(limit int, done func() bool) bool {
	for range limit {
		w.settle()
		if done() {
			return true
		}
		a, ok := w.ordinary()
		if !ok {
			break
		}
		w.perform(a)
	}
	w.settle()
	return done()
}
