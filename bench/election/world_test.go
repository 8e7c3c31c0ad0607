package election

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// maxDelay is the longest delay of a request. The average is half of it.
const maxDelay = 40 * time.Millisecond

// world is one election: a store and candidates, in a bubble of virtual time.
type world struct {
	*testing.T
	contender
	st      *faultstore.Store
	ctx     context.Context // for all goroutines of the election
	running sync.WaitGroup
	n       int

	terms    chan *term         // every term that begins
	releases chan time.Time     // every release that the store has applied
	mu       sync.Mutex         // guards the fields below
	leading  map[*term]struct{} // by their own belief
	overlaps []time.Duration    // how long two nodes believed at once that they lead
}

// term is a leadership as its node believes it.
type term struct {
	*node
	began time.Time
	ended chan time.Time // takes the end of its work
	leave func()         // resigns
	done  chan struct{}  // closed: its work ends by itself
}

// node is a process.
type node struct {
	name    string
	st      *faultstore.Store
	stop    context.CancelFunc // ends its campaigns, and its term if it leads
	leaving atomic.Bool        // it will not campaign again
}

// inWorld runs a scenario and ends all goroutines that it started.
func inWorld(t *testing.T, c contender, scenario func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{
			T: t, contender: c, ctx: ctx, leading: map[*term]struct{}{},
			terms: make(chan *term, 64), releases: make(chan time.Time, 64),
		}
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		w.st = faultstore.New(watched{mem, w}, &faultstore.Options{Seed: 1, Clock: clock.Go(), Rates: faultstore.Rates{MaxDelay: maxDelay}})
		defer w.running.Wait()
		defer cancel()
		scenario(w)
	})
}

// watched is the store below the delays. It notes when a release is applied.
type watched struct {
	store.Store
	w *world
}

func (s watched) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	info, err := s.Store.Put(ctx, key, body, opts)
	if err == nil && s.w.released(body) {
		select {
		case s.w.releases <- time.Now():
		default:
		}
	}
	return info, err
}

// candidate starts a node that campaigns again after each term.
func (w *world) candidate() *node {
	w.n++
	name := fmt.Sprintf("n%d", w.n)
	ctx, stop := context.WithCancel(w.ctx)
	n := &node{name: name, st: w.st.Client(name), stop: stop}
	w.running.Go(func() {
		for ctx.Err() == nil && !n.leaving.Load() {
			err := w.run(ctx, n.st, name, func(ctx context.Context, leave func()) {
				t := &term{node: n, began: time.Now(), ended: make(chan time.Time, 1), leave: leave, done: make(chan struct{})}
				w.begin(t)
				select {
				case <-ctx.Done():
				case <-t.done:
				}
				w.end(t)
			})
			if err != nil {
				w.Errorf("%s: %s: %v", w.name, name, err)
				return
			}
		}
	})
	return n
}

// first starts some candidates and returns the first term.
func (w *world) first(candidates int) *term {
	for range candidates {
		w.candidate()
	}
	return <-w.terms
}

func (w *world) begin(t *term) {
	w.mu.Lock()
	w.leading[t] = struct{}{}
	w.mu.Unlock()
	select {
	case w.terms <- t:
	case <-w.ctx.Done():
	}
}

func (w *world) end(t *term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.leading, t)
	now := time.Now()
	t.ended <- now
	for other := range w.leading {
		if both := min(now.Sub(t.began), now.Sub(other.began)); both > 0 {
			w.overlaps = append(w.overlaps, both)
		}
	}
}

// crash kills the node like a process: none of its requests reaches the store any more.
func (n *node) crash() {
	n.st.Crash()
	n.stop()
}
