package leader_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// world is one store and several nodes in a bubble of virtual time.
type world struct {
	*testing.T
	mem    *memstore.Store
	faulty *faultstore.Store
}

func inWorld(t *testing.T, test func(*world)) {
	t.Helper()
	inWorldOf(t, memstore.Options{}, faultstore.Options{}, test)
}

func inWorldOf(t *testing.T, m memstore.Options, f faultstore.Options, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m.Clock, f.Clock = clock.Go(), clock.Go()
		if f.Rates.MaxDelay == 0 {
			f.Rates.MaxDelay = 40 * time.Millisecond
		}
		mem := memstore.New(&m)
		test(&world{T: t, mem: mem, faulty: faultstore.New(mem, &f)})
	})
}

// node is one process: a store client, a clock and an elector.
type node struct {
	*leader.Elector
	name  string
	st    *faultstore.Store
	clock *nodeClock
}

func (w *world) node(name string, change ...func(*leader.Options)) *node {
	w.Helper()
	n := &node{name: name, st: w.faulty.Client(name), clock: &nodeClock{rate: 1, origin: clock.Go().Now()}}
	o := leader.Options{Identity: name, Clock: n.clock}
	for _, f := range change {
		f(&o)
	}
	e, err := leader.New(n.st, "lock", &o)
	if err != nil {
		w.Fatal(err)
	}
	n.Elector = e
	return n
}

// campaign waits for a term.
func (w *world) campaign(n *node) *leader.Term {
	w.Helper()
	t := <-w.campaigning(n)
	if t == nil {
		w.FailNow()
	}
	return t
}

// campaigning sends a term, or nil if there is none within a day.
func (w *world) campaigning(n *node) <-chan *leader.Term {
	won := make(chan *leader.Term, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 24*time.Hour)
		defer cancel()
		t, err := n.Campaign(ctx)
		if err != nil {
			w.Errorf("%s: %v", n.name, err)
		}
		won <- t
	}()
	return won
}

func (w *world) resign(t *leader.Term) {
	w.Helper()
	if err := t.Resign(w.Context()); err != nil {
		w.Fatalf("epoch %v: resign: %v", t.Epoch(), err)
	}
}

// prune prunes as the options say, past all faults.
func (w *world) prune(o leader.PruneOptions) int {
	w.Helper()
	e, err := leader.New(w.mem, "lock", &leader.Options{Clock: clock.Go(), Prune: o})
	if err != nil {
		w.Fatal(err)
	}
	n, err := e.Prune(w.Context())
	if err != nil {
		w.Error(err)
	}
	return n
}

// locks is how many locks there are.
func (w *world) locks() (n int) {
	w.Helper()
	for info, err := range w.mem.List(w.Context(), "lock/", nil) {
		if err != nil {
			w.Fatal(err)
		}
		if info.Key != "lock/candidate.json" {
			n++
		}
	}
	return n
}

func key(epoch int) string { return fmt.Sprintf("lock/%020d.json", epoch) }

// file is the content of a lock file, read past all faults.
func (w *world) file(epoch int) map[string]any {
	w.Helper()
	body, _, err := store.Read(context.Background(), w.mem, key(epoch), &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		w.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		w.Fatal(err)
	}
	return m
}

// nodeClock is a node's own clock. It runs at its own rate, and its timers do not notice
// a suspend.
type nodeClock struct {
	rate   float64 // of this clock's seconds to real ones
	origin clock.Instant

	mu     sync.Mutex
	jumped time.Duration
	wall   time.Duration
}

func (c *nodeClock) Now() clock.Instant {
	c.mu.Lock()
	defer c.mu.Unlock()
	// From the bubble's beginning, so that a float is exact to the nanosecond.
	return clock.Instant(float64(clock.Go().Now().Sub(c.origin))*c.rate) + clock.Instant(c.jumped)
}

func (c *nodeClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.wall)
}

func (c *nodeClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	// Rounded up: a timer never fires before its time.
	return clock.Go().AfterFunc(time.Duration(float64(d)/c.rate)+1, f)
}

// suspend lets time pass that no timer notices, as a closed lid does.
func (c *nodeClock) suspend(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumped += d
}

// setWall sets the time of day.
func (c *nodeClock) setWall(offset time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = offset
}
