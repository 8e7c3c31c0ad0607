package sim

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// dice is the scheduler that draws its acts at random.
type dice struct {
	plan   Plan
	rng    *rand.Rand
	order  *rand.Rand // shuffles listings
	looked int        // hold has decided about all requests seen before this step
}

func newDice(p Plan) *dice {
	return &dice{plan: p, rng: rand.New(rand.NewPCG(p.Seed, 1)), order: rand.New(rand.NewPCG(p.Seed, 2))}
}

func (d *dice) roll(chance float64) bool { return chance > 0 && d.rng.Float64() < chance }

// next draws an act.
func (d *dice) next(w *world) (act, bool) {
	if w.steps >= d.plan.Steps || w.settled() {
		return act{}, false
	}
	d.hold(w)
	for _, n := range w.nodes {
		if n.paused && !n.dead && w.steps >= n.until {
			return onNode(resume, n, 0), true
		}
	}
	if a, ok := d.trouble(w); ok {
		return a, true
	}
	var ready []*request
	var sum float64
	for _, r := range w.pending {
		if r.held > w.steps || r.node.paused && (r.step() || r.landed > 0) {
			continue
		}
		ready = append(ready, r)
		sum += d.weightOf(r.node)
	}
	timer := w.next()
	if len(ready) == 0 || timer != nil && d.roll(d.plan.Hurry) {
		if timer != nil {
			return onNode(tick, timer, 0), true
		}
		return d.thaw(w)
	}
	at := d.rng.Float64() * sum
	pick := ready[len(ready)-1]
	for _, r := range ready {
		if at -= d.weightOf(r.node); at < 0 {
			pick = r
			break
		}
	}
	return d.ordinary(w, pick), true
}

// ordinary returns the next act for a request without a fault.
func (d *dice) ordinary(w *world, r *request) act {
	switch {
	case r.landed > 0:
		return onRequest(deliver, r)
	case r.step():
		return onRequest(apply, r)
	case d.plan.Walks && r.op == "list" && !r.walked && r.most == 0 && d.rng.IntN(3) == 0:
		return onRequest(walk, r)
	case r.node.paused || d.rng.IntN(6) == 0:
		if d.roll(d.plan.Hold) { // the answer is slow
			r.held = w.steps + d.long()
		}
		return onRequest(land, r)
	}
	return onRequest(apply, r)
}

// weightOf returns how fast a node is. Some nodes are faster than others for a while.
func (d *dice) weightOf(n *node) float64 {
	if n.weight == 0 {
		n.weight = []float64{0.02, 0.3, 1, 1, 1, 4}[d.rng.IntN(6)]
		if n.role[0] == 'c' && d.plan.Eager {
			n.weight = 6
		}
	}
	return n.weight
}

// hold decides once for each request whether it is held back, and for how long. That may
// be the rest of the history.
func (d *dice) hold(w *world) {
	for _, r := range w.pending {
		chance := d.plan.Hold
		if r.reads() {
			chance /= 3
		}
		if r.since >= d.looked && d.roll(chance) {
			r.held = w.steps + d.long()
		}
	}
	d.looked = w.steps + 1
	if d.rng.IntN(40) == 0 {
		for _, n := range w.nodes {
			n.weight = 0
		}
	}
}

// long draws a number of steps: a few, or more than the rest of the history.
func (d *dice) long() int { return 1 + d.rng.IntN(1<<(2+d.rng.IntN(8))) }

// thaw lets a held request or a stopped node continue when nothing else can.
func (d *dice) thaw(w *world) (act, bool) {
	for _, r := range w.pending {
		if r.held > w.steps && !r.node.paused {
			r.held = 0
			return d.ordinary(w, r), true
		}
	}
	for _, n := range w.nodes {
		if n.paused && n.live() {
			return onNode(resume, n, 0), true
		}
	}
	for _, n := range w.nodes {
		if n.clock.rate == 0 && n.live() {
			return onNode(rate, n, 1000), true
		}
	}
	return act{}, false
}

// trouble draws a fault, or none.
func (d *dice) trouble(w *world) (act, bool) {
	p := d.plan
	switch {
	case d.roll(p.Fault):
		var some []*request
		for _, r := range w.pending {
			switch {
			case r.step() || r.node.paused:
			case r.reads():
				some = append(some, r)
			default: // writes matter more
				some = append(some, r, r, r, r)
			}
		}
		if len(some) > 0 {
			r := some[d.rng.IntN(len(some))]
			a := onRequest([]kind{reset, reset, lose, lose, refuse, failed, echo, tear}[d.rng.IntN(8)], r)
			a.n = int64([]int{http.StatusConflict, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusForbidden}[d.rng.IntN(5)])
			if a.kind == failed && a.n == http.StatusForbidden {
				a.n = http.StatusConflict // a store that denies access has written nothing
			}
			return a, w.sensible(a.kind, r)
		}
	case d.roll(p.Late):
		some := w.late
		if d.rng.IntN(4) == 0 {
			some = w.past
		}
		if len(some) > 0 {
			return onRequest(late, some[d.rng.IntN(len(some))]), true
		}
	case d.roll(p.Pause):
		if n := d.someone(w); n != nil && !n.paused {
			n.until = w.steps + 1 + d.rng.IntN(1<<(3+d.rng.IntN(7)))
			return onNode(pause, n, 0), true
		}
	case d.roll(p.Crash):
		if n := d.someone(w); n != nil && n.lives > 0 {
			return onNode(crash, n, 0), true
		}
	case d.roll(p.Bend):
		n := d.someone(w)
		switch {
		case n == nil:
		case d.rng.IntN(6) == 0:
			return act{kind: sleep, on: "all", n: int64([]time.Duration{time.Second, time.Minute, 30 * 24 * time.Hour}[d.rng.IntN(3)])}, true
		case d.rng.IntN(2) == 0:
			return onNode(jump, n, int64([]time.Duration{time.Millisecond, time.Second, time.Hour, 30 * 24 * time.Hour}[d.rng.IntN(4)])), true
		default:
			return onNode(rate, n, []int64{0, 300, 900, 999, 1001, 1100, 3000, 1000}[d.rng.IntN(8)]), true
		}
	}
	return act{}, false
}

// someone returns a random live node, or nil.
func (d *dice) someone(w *world) *node {
	some := slices.DeleteFunc(slices.Clone(w.nodes), func(n *node) bool { return !n.live() })
	if len(some) == 0 {
		return nil
	}
	return some[d.rng.IntN(len(some))]
}
