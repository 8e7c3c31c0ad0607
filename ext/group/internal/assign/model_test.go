package assign

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
)

// This file plays spec/group.pml with the planner in it: members look, start, stop,
// acknowledge and end at any time, and organisers know old facts.

// actor is a member.
type actor struct {
	lease  bool
	known  *Assignment // the newest that it has seen
	held   map[int]uint64
	opened map[int]int
	work   map[int]bool
	acked  map[int]uint64
}

type play struct {
	rng     *rand.Rand
	all     []*Assignment // all[n] is assignment n
	total   int           // partitions, by group.json
	actors  map[fence.ID]*actor
	order   []fence.ID // the actors as they joined
	top     map[int]fence.Token
	started int
}

func (w *play) newest() *Assignment { return w.all[len(w.all)-1] }

func (w *play) cleared(a *Assignment, p int, e Entry) bool {
	x := w.actors[a.Members()[e.Member].Name]
	return !x.lease || x.acked[p] >= e.Number
}

// mine reports whether m may go on with what it holds.
func (x *actor) mine(me fence.ID, p int) bool {
	return p < x.known.Partitions() && owner(x.known, p) == me && x.known.Tenure(p) == x.held[p]
}

func (x *actor) giveUp(me fence.ID) {
	for p := range x.held {
		if !x.work[p] && !x.mine(me, p) {
			delete(x.held, p)
			delete(x.opened, p)
		}
	}
}

func (w *play) open(me fence.ID, x *actor, p int) error {
	for name, other := range w.actors {
		if name != me && other.work[p] {
			return fmt.Errorf("%s starts partition %d by %d, while %s works by %d", me, p, x.known.Number(), name, other.known.Number())
		}
	}
	token := x.known.Token(p, x.opened[p])
	if token.Epoch() <= w.top[p].Epoch() {
		return fmt.Errorf("%s opens partition %d with %s, after %s", me, p, token, w.top[p])
	}
	w.top[p] = token
	x.opened[p]++
	x.work[p] = true
	w.started++
	return nil
}

// start does what an actor may do for a partition that its newest assignment gives to it.
func (w *play) start(me fence.ID, x *actor, p int) error {
	if p >= x.known.Partitions() || x.work[p] || owner(x.known, p) != me {
		return nil
	}
	if x.held[p] == 0 {
		for _, e := range x.known.Pending(p) {
			if x.known.Members()[e.Member].Name != me && !w.cleared(x.known, p, e) {
				return nil
			}
		}
		x.held[p] = x.known.Tenure(p)
	}
	if x.mine(me, p) {
		return w.open(me, x, p)
	}
	return nil
}

// ack acknowledges a partition, up to what x has seen.
func (x *actor) ack(me fence.ID, p int) {
	if p < x.known.Partitions() && !x.work[p] {
		if _, ok := pending(x.known, p)[me]; ok {
			x.acked[p] = x.known.Number()
		}
	}
}

// step is one event.
func (w *play) step() error {
	if len(w.order) == 0 || len(w.order) < 8 && w.rng.IntN(20) == 0 {
		me := name(1000 + len(w.order))
		w.actors[me] = &actor{lease: true, known: w.newest(), held: map[int]uint64{}, opened: map[int]int{}, work: map[int]bool{}, acked: map[int]uint64{}}
		w.order = append(w.order, me)
	}
	me := w.order[w.rng.IntN(len(w.order))]
	x, p := w.actors[me], w.rng.IntN(w.total)
	if !x.lease {
		return nil
	}
	switch w.rng.IntN(20) {
	case 0:
		if w.rng.IntN(6) == 0 {
			*x = actor{known: x.known}
		}
	case 1, 2, 3, 4, 5:
		if n := int(x.known.Number()); n+1 < len(w.all) {
			x.known = w.all[n+1+w.rng.IntN(len(w.all)-n-1)]
			x.giveUp(me)
		}
	case 6, 7:
		delete(x.work, p)
		x.giveUp(me)
	case 8, 9, 10, 11:
		x.ack(me, p)
	case 12:
		return w.organise(me)
	default:
		return w.start(me, x, p)
	}
	return nil
}

// organise makes the next assignment from facts of which some are old.
func (w *play) organise(me fence.ID) error {
	a := w.newest()
	news := &News{Organiser: me, Partitions: 1 + w.rng.IntN(w.total)}
	for _, name := range w.order {
		m := MemberNews{Name: name, Weight: uint64(w.rng.IntN(3))}
		switch x := w.actors[name]; {
		case !x.lease && w.rng.IntN(2) == 0:
			m.State = Expired
		case w.rng.IntN(8) == 0:
			m.State = Leaving
		}
		news.Members = append(news.Members, m)
	}
	w.rng.Shuffle(len(news.Members), func(i, j int) {
		news.Members[i], news.Members[j] = news.Members[j], news.Members[i]
	})
	forgets := w.rng.IntN(2) == 0
	news.Cleared = func(p int, e Entry) bool { return !forgets && w.cleared(a, p, e) }
	for range w.rng.IntN(3) {
		p := w.rng.IntN(a.Partitions())
		news.Requests = append(news.Requests, Request{Partition: p, Tenure: a.Tenure(p), Fresh: w.rng.IntN(2) == 0})
	}
	next, err := Next(a, news)
	if next != nil {
		w.all = append(w.all, next)
	}
	if w.rng.IntN(4) == 0 && w.total < 3 {
		w.total++
	}
	return err
}

// guard:pending-kept. Without this: A works on the partition; assignment 2 gives it to B, and has a
// pending entry for A; B waits for A; assignment 3 gives the partition to C, and has a pending entry
// only for B; B has no work to stop, and acknowledges; C starts while A, which has not read assignment
// 2, works.
//
// guard:pending-raised. Without this: assignment 2 takes the partition from A, whose entry gets the
// number 2; assignment 3 gives the partition back to A before A has acknowledged; A acknowledges
// assignment 3, and starts; assignment 4 gives the partition to B, and leaves A's entry at number 2;
// A's acknowledgement of assignment 3 clears this entry; B starts while A works.
func TestPlay(t *testing.T) {
	seeds := test.Of(200, 3000)
	started, made := 0, 0
	for seed := range seeds {
		shareTenures(t, 1+999*(seed%2))
		w := &play{
			rng: rand.New(rand.NewPCG(uint64(seed), 7)), all: []*Assignment{New(name(-1), 1, 1000)}, total: 1,
			actors: map[fence.ID]*actor{}, top: map[int]fence.Token{},
		}
		for step := range 300 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
		}
		started += w.started
		made += len(w.all) - 1
	}
	t.Logf("%d starts by %d assignments", started, made)
	if started < 2*seeds || made < 5*seeds {
		t.Error("too little happens")
	}
}

// A member that another one follows is listed as long as anybody waits for it.
//
// guard:pending-owner. The new owner starts only when all pending entries of the partition are cleared.
// Without this entry: A works on the partition; assignment 2 gives it to B; B starts at once; A has not
// read assignment 2 yet, and works on.
func TestPendingMembersAreListed(t *testing.T) {
	g := newGroup(t, 4)
	g.cleared = func(int, Entry) bool { return false }
	g.join(2, 1)
	g.next()
	first := g.members[0].Name
	g.end(0, Leaving)
	g.next()
	if _, listed := g.a.Index(first); !listed || !slices.Contains(slices.Collect(maps.Keys(pending(g.a, 0))), first) {
		t.Fatalf("%+v, %v", g.a.Members(), pending(g.a, 0))
	}
	g.end(0, Expired)
	g.join(1, 1)
	g.next()
	if _, listed := g.a.Index(first); listed || pending(g.a, 0)[first] > 0 {
		t.Errorf("%+v, %v", g.a.Members(), pending(g.a, 0))
	}
}
