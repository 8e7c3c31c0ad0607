package sim

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Scenario is a small case of which [Explore] runs all schedules.
type Scenario struct {
	Name string
	long bool // takes minutes
	// Plan describes the store. Its numbers of nodes are not used.
	Plan Plan
	// setup fills the log before the exploration starts, on a store that answers at once.
	setup func(w *world, n *node)
	// nodes starts the nodes that are explored.
	nodes func(w *world)
	// prefix, if not nil, is called with the next ordinary act. The exploration starts
	// when it first returns false.
	prefix func(w *world, next act) bool
	// private lists prefixes of keys that no node writes, or that only one node uses.
	private []string
	// ticks is the number of timers that may fire in each node. They may fire at any
	// time, because the protocol trusts no clock.
	ticks map[string]int
	// late lets writes land at any later time when no client waits for them.
	late bool
}

// Explored counts the work of one exploration.
type Explored struct {
	// States is the number of states of the world between two decisions.
	States int
	// Runs is the number of runs, each from the beginning. Ends of them ran to the end.
	// The others stopped at a state that an earlier run had seen.
	Runs, Ends int
	// Depth is the largest number of decisions in one schedule.
	Depth int
}

func (e Explored) String() string {
	return fmt.Sprintf("schedules of up to %d decisions; %d states, %d runs, %d of them to the end", e.Depth, e.States, e.Runs, e.Ends)
}

// choice is a decision on the current path: which request takes effect and is answered, or
// which node's timer fires. A request has the same name in all schedules.
type choice struct {
	state   uint64
	enabled []act
	taken   int
}

// explorer is the scheduler of one run. It follows the current path. At the end of the
// path it takes the first move each time, until it reaches a state that was seen before.
//
// Two schedules that lead to the same state continue in the same ways, so one of them is
// enough. The state of a node is a hash of all that it was told. That is enough, because
// the node is deterministic. Independent requests lead to the same state in any order.
type explorer struct {
	scenario *Scenario
	path     []*choice
	seen     map[uint64]bool // states
	depth    int
	ticks    map[string]int
	begun    bool
	cut      bool
	last     bool // repeats a broken run for its story
	err      error
}

// Explore runs all schedules of a scenario with the real code, and checks each like any
// history. It stops at the first schedule that breaks a promise.
func Explore(t *testing.T, s *Scenario) (Explored, *Result) {
	t.Helper()
	var e Explored
	x := &explorer{scenario: s, seen: map[uint64]bool{}}
	for {
		x.reset()
		r := x.run(t, false)
		if x.err != nil {
			t.Fatalf("%s: %v", s.Name, x.err)
		}
		if e.Runs++; !x.cut {
			e.Ends++
		}
		e.Depth = max(e.Depth, len(x.path))
		e.States = len(x.seen)
		if r.Err != nil && !x.cut {
			x.reset()
			x.last = true
			return e, x.run(t, true)
		}
		if !x.back() {
			return e, nil
		}
	}
}

func (x *explorer) reset() {
	x.depth, x.begun, x.cut, x.ticks = 0, false, false, maps.Clone(x.scenario.ticks)
}

func (x *explorer) run(t *testing.T, tell bool) *Result {
	t.Helper()
	p := x.scenario.Plan
	p.Explored = true
	return runWith(t, p, x.scenario, func(*world) scheduler { return x }, tell)
}

func (x *explorer) abandoned() bool { return x.cut }

// back returns to the last decision that has an untried move, and takes that move. It
// returns false when there is none.
func (x *explorer) back() bool {
	for len(x.path) > 0 {
		c := x.path[len(x.path)-1]
		if c.taken++; c.taken < len(c.enabled) {
			return true
		}
		x.path = x.path[:len(x.path)-1]
	}
	return false
}

func (x *explorer) next(w *world) (act, bool) {
	for _, r := range w.pending {
		if r.step() {
			return onRequest(apply, r), true // affects no other node
		}
	}
	if !x.begun && x.scenario.prefix != nil {
		if a, ok := w.ordinary(); ok && x.scenario.prefix(w, a) {
			return a, true
		}
	}
	x.begun = true
	if r := x.alone(w); r != nil {
		return onRequest(apply, r), true
	}
	enabled, state := x.enabled(w), w.state()
	if x.depth == len(x.path) && (x.last || !x.extend(state, enabled)) {
		return act{}, false
	}
	c := x.path[x.depth]
	want := c.enabled[c.taken]
	i := slices.IndexFunc(enabled, func(a act) bool { return a.kind == want.kind && a.on == want.on })
	if i < 0 || state != c.state {
		x.err = fmt.Errorf("the run is not repeatable: decision %d took %q, one of %d acts; now there are %d", x.depth, want.on, len(c.enabled), len(enabled))
		return act{}, false
	}
	x.depth++
	if want.kind == tick {
		x.ticks[want.on]--
	}
	return enabled[i], true
}

// alone returns a request that needs no decision, or nil. It is the only request of its
// node, and it is independent of all requests of the other nodes. Taken at once, it
// stands for all orders (a persistent set of one).
func (x *explorer) alone(w *world) *request {
	for _, r := range w.pending {
		private := slices.ContainsFunc(x.scenario.private, func(prefix string) bool { return strings.HasPrefix(r.key, prefix) })
		if private && x.ticks[r.node.name] == 0 && !slices.ContainsFunc(w.pending, func(o *request) bool { return o != r && o.node == r.node }) {
			return r
		}
	}
	return nil
}

// extend notes the state at the end of the path and adds a decision there. It returns
// false if the run has ended or the state was seen before.
func (x *explorer) extend(state uint64, enabled []act) bool {
	x.cut = x.seen[state]
	x.seen[state] = true
	if x.cut || len(enabled) == 0 {
		return false
	}
	x.path = append(x.path, &choice{state: state, enabled: enabled})
	return true
}

func (x *explorer) enabled(w *world) (acts []act) {
	for _, r := range w.pending {
		acts = append(acts, onRequest(apply, r))
	}
	if x.scenario.late {
		for _, r := range w.late {
			acts = append(acts, onRequest(late, r))
		}
	}
	for _, n := range w.nodes {
		if _, ok := n.clock.next(w.now); ok && x.ticks[n.name] > 0 && n.live() {
			acts = append(acts, onNode(tick, n, 0))
		}
	}
	return acts
}

// state returns a hash of everything that the future depends on. That is: the objects in
// the store and their writers, what each node was told, the requests in flight, and which
// operations ended before others began.
func (w *world) state() uint64 {
	var sum uint64
	for _, o := range w.bucket.objects {
		sum += mix(o.id, str(mask(o.key)))
	}
	for _, n := range w.nodes {
		if !n.live() {
			continue // an ended node affects the future only by its writes and operations
		}
		sum += mix(str(n.name), n.knows, n.fetched)
	}
	for _, h := range w.holds.byKey {
		sum += mix(str(h.node.name), h.version, flag01(h.good), flag01(h.lost))
	}
	sum += mix(uint64(len(w.history.wrong)))
	for _, r := range w.pending {
		sum += mix(str(r.id), 1)
	}
	for _, r := range w.late {
		sum += mix(str(r.id), 2)
	}
	for i, o := range w.history.ops {
		before := uint64(0)
		for k, p := range w.history.ops {
			if k != i && p.ret >= 0 && p.ret < o.call {
				before += mix(str(p.node), uint64(p.kind), uint64(p.epoch))
			}
		}
		sum += mix(str(o.node), uint64(o.kind), uint64(o.epoch), before, flag01(o.ret >= 0), uint64(o.outcome), o.offset, str(o.cursor))
	}
	return sum
}

// learn notes that a node was told something. The order of objects that a walk along the
// chain fetches does not matter: the walk checks them in the order of the chain, and
// drops those after the tail.
func (n *node) learn(what uint64, fetched bool) {
	if fetched {
		n.fetched += mix(what)
	} else {
		n.knows = mix(n.knows, what)
	}
}

func mix(of ...uint64) uint64 {
	h := uint64(14695981039346656037)
	for _, v := range of {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

func str(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}

func flag01(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
