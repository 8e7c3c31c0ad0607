package group_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

const validity = 15 * time.Second

// world is one store and several workers in a bubble of virtual time.
type world struct {
	*testing.T
	partitions int
	clock      *fixture.Freezable // the store's
	mem        *memstore.Store
	faulty     *faultstore.Store

	mu    sync.Mutex
	top   map[int]fence.Epoch // the greatest token of each partition
	owns  map[int]*ownership  // who works on it, by his own belief
	freed map[int]time.Time
	gaps  []time.Duration
	opens int
}

// ownership is a worker's belief that it owns a partition.
type ownership struct {
	who string
	p   *group.Partition
}

func inWorld(t *testing.T, partitions int, test func(*world)) {
	t.Helper()
	inFaultyWorld(t, partitions, faultstore.Options{}, test)
}

func inFaultyWorld(t *testing.T, partitions int, f faultstore.Options, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// Join does not wait until a session that it gives up has left. In two validities of the bubble's time
		// it has, so no goroutine is left when the bubble ends.
		t.Cleanup(func() { time.Sleep(2 * validity) })
		f.Clock = clock.Go()
		if f.Rates.MaxDelay == 0 {
			f.Rates.MaxDelay = 40 * time.Millisecond
		}
		c := &fixture.Freezable{}
		mem := memstore.New(&memstore.Options{Clock: c})
		group.Found(t, mem, partitions, validity)
		test(&world{
			T: t, partitions: partitions, clock: c, mem: mem, faulty: faultstore.New(mem, &f),
			top: map[int]fence.Epoch{}, owns: map[int]*ownership{}, freed: map[int]time.Time{},
		})
	})
}

// worker is a process: a client of the store, a clock, and a loop that joins again whenever its session
// is over.
type worker struct {
	w      *world
	name   string
	st     *faultstore.Store
	clock  *clock.Suspendable
	opts   group.Options
	cancel context.CancelCauseFunc
	done   chan struct{}
	dead   bool
	stale  string // a session whose clock stood still: it may still start what it was given long ago

	mu   sync.Mutex
	g    *group.Group
	errs []error
	// work is what it does on a partition; by default it waits for the end.
	work func(ctx context.Context, p *group.Partition) error
}

var errStop = errors.New("the worker is told to stop")

func (w *world) worker(name string, change ...func(*worker)) *worker {
	w.Helper()
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	x := &worker{w: w, name: name, st: w.faulty.Client(name), clock: &clock.Suspendable{}, done: make(chan struct{})}
	x.opts = group.Options{Identity: name, Clock: x.clock, Seed: h.Sum64()}
	x.work = func(ctx context.Context, _ *group.Partition) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	for _, f := range change {
		f(x)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	x.cancel = cancel
	go x.loop(ctx)
	w.Cleanup(func() { cancel(errStop); <-x.done })
	return x
}

func (x *worker) loop(ctx context.Context) {
	defer close(x.done)
	for ctx.Err() == nil && !x.st.Crashed() {
		g, err := group.Join(ctx, x.st, &x.opts)
		if err == nil {
			x.mu.Lock()
			x.g = g
			x.mu.Unlock()
			err = g.Run(ctx, x.serve)
		}
		x.mu.Lock()
		x.errs = append(x.errs, err)
		x.mu.Unlock()
		_ = clock.Sleep(ctx, clock.Go(), time.Second)
	}
}

// serve checks that nobody else works on the partition, and that tokens rise.
func (x *worker) serve(ctx context.Context, p *group.Partition) error {
	w := x.w
	w.mu.Lock()
	n, token := p.Number(), p.Token().Epoch()
	if x.stale != "" && x.stale == x.session() {
		defer w.mu.Unlock()
		if token >= w.top[n] {
			w.Errorf("a session of long ago opens partition %d with token %d, and another has opened it with %d", n, token, w.top[n])
		}
		return errStop
	}
	if o := w.owns[n]; o != nil && o.p.Remaining() > 0 {
		w.Errorf("%v: %s opens partition %d while %s works on it", time.Now().UTC(), x.name, n, o.who)
	}
	if token <= w.top[n] {
		w.Errorf("%s opens partition %d with token %d after %d", x.name, n, token, w.top[n])
	}
	w.top[n] = token
	me := &ownership{x.name, p}
	w.owns[n] = me
	w.opens++
	if at, ok := w.freed[n]; ok {
		w.gaps = append(w.gaps, time.Since(at))
		delete(w.freed, n)
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.owns[n] == me {
			delete(w.owns, n)
			w.freed[n] = time.Now()
		}
	}()
	return x.work(ctx, p)
}

// session is the name of the worker's session, or "" if it has had none.
func (x *worker) session() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.g == nil {
		return ""
	}
	return x.g.Member()
}

// crash ends the worker without a trace. Its work counts as over from now on.
func (x *worker) crash() {
	x.w.mu.Lock()
	for n, o := range x.w.owns {
		if o.who == x.name {
			delete(x.w.owns, n)
			x.w.freed[n] = time.Now()
		}
	}
	x.dead = true
	x.w.mu.Unlock()
	x.st.Crash()
	x.cancel(errStop)
}

// stop leaves in good order.
func (x *worker) stop() {
	x.dead = true
	x.cancel(errStop)
	<-x.done
}

// owned is how many partitions a worker owns.
func (w *world) owned(x *worker) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.owns {
		if o.who == x.name {
			n++
		}
	}
	return n
}

// whole waits until every partition is worked on and shares are fair, for at most d.
func (w *world) whole(d time.Duration, workers ...*worker) time.Duration {
	w.Helper()
	start := time.Now()
	for {
		sum, least, most := 0, w.partitions, 0
		for _, x := range workers {
			n := w.owned(x)
			sum, least, most = sum+n, min(least, n), max(most, n)
		}
		if sum == w.partitions && most-least <= 1 {
			return time.Since(start)
		}
		if time.Since(start) > d {
			s := ""
			for _, x := range workers {
				x.mu.Lock()
				s += fmt.Sprintf(" %s owns %d (%v)", x.name, w.owned(x), x.errs)
				x.mu.Unlock()
			}
			w.Fatalf("after %v of %d partitions %d are worked on:%s", d, w.partitions, sum, s)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// end stops all workers that live.
func (w *world) end(workers ...*worker) {
	for _, x := range workers {
		x.cancel(errStop)
	}
	for _, x := range workers {
		<-x.done
	}
}

var _ store.Store
