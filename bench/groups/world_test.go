package groups

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
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/probe"
)

// world is a store and its users in a bubble of virtual time. Each request takes up to 40 ms.
type world struct {
	*testing.T
	partitions int
	share      int // of rivals: how many partitions a worker takes at most
	mem        *memstore.Store
	faulty     *faultstore.Store

	mu       sync.Mutex
	owners   []*worker       // by partition, by their own belief
	freed    []time.Time     // by partition: since when nobody owns it; or zero
	gaps     []time.Duration // how long a partition had no owner
	moves    []int           // openings by partition
	requests map[string]map[faultstore.Kind]int
}

func inWorld(t *testing.T, partitions int, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		w := &world{
			T: t, partitions: partitions, mem: mem, owners: make([]*worker, partitions), freed: make([]time.Time, partitions),
			faulty: faultstore.New(mem, &faultstore.Options{Clock: clock.Go(), Rates: faultstore.Rates{MaxDelay: 40 * time.Millisecond}}),
		}
		w.forget()
		w.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.requests[op.Client] == nil {
				w.requests[op.Client] = map[faultstore.Kind]int{}
			}
			w.requests[op.Client][op.Kind]++
		})
		test(w)
	})
}

// found creates the group.
func (w *world) found() {
	w.Helper()
	if err := group.Create(w.Context(), w.mem, &group.Options{Partitions: w.partitions, Validity: validity, Probe: quickProbe()}); err != nil {
		w.Fatal(err)
	}
}

func quickProbe() *probe.Options {
	return &probe.Options{Clients: 2, Rounds: 1, Keys: 2, Refusals: 2, UploadSize: 1, Clock: clock.Go()}
}

// forget begins all measures anew.
func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gaps, w.moves, w.requests = nil, make([]int, w.partitions), map[string]map[faultstore.Kind]int{}
}

// sent is how many requests all have sent.
func (w *world) sent() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, kinds := range w.requests {
		for _, times := range kinds {
			n += times
		}
	}
	return n
}

// worker is a process.
type worker struct {
	w       *world
	name    string
	st      *faultstore.Store
	cancel  context.CancelCauseFunc
	done    chan struct{}
	owns    int // guarded by w.mu
	crashed bool
	ends    int // sessions that were lost
}

var errStop = errors.New("the worker is told to stop")

// start starts a process that runs f, and again when f returns.
func (w *world) start(name string, f func(ctx context.Context, x *worker)) *worker {
	ctx, cancel := context.WithCancelCause(context.Background())
	x := &worker{w: w, name: name, st: w.faulty.Client(name), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(x.done)
		for ctx.Err() == nil && !x.st.Crashed() {
			f(ctx, x)
			_ = clock.Sleep(ctx, clock.Go(), time.Second)
		}
	}()
	return x
}

// worker starts a member of the group, whose work does nothing.
func (w *world) worker(name string) *worker {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	opts := &group.Options{Identity: name, Clock: clock.Go(), Seed: h.Sum64()}
	return w.start(name, func(ctx context.Context, x *worker) {
		g, err := group.Join(ctx, x.st, opts)
		if err == nil {
			err = g.Run(ctx, func(ctx context.Context, p *group.Partition) error {
				x.opens(p.Number())
				defer x.closes(p.Number())
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}
		if ctx.Err() == nil && !errors.Is(err, errStop) {
			w.mu.Lock()
			x.ends++
			w.mu.Unlock()
		}
	})
}

func (w *world) workers(n int) (all []*worker) {
	for i := range n {
		all = append(all, w.worker(fmt.Sprint("w", i)))
	}
	return all
}

// opens notes that the worker believes that it owns a partition.
func (x *worker) opens(p int) {
	w := x.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.owners[p]; o != nil {
		w.Errorf("%s opens partition %d while %s works on it", x.name, p, o.name)
	}
	w.owners[p] = x
	x.owns++
	w.moves[p]++
	if !w.freed[p].IsZero() {
		w.gaps = append(w.gaps, time.Since(w.freed[p]))
		w.freed[p] = time.Time{}
	}
}

// closes notes that it does not any more.
func (x *worker) closes(p int) {
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	x.free(p)
}

func (x *worker) free(p int) {
	if x.w.owners[p] == x {
		x.w.owners[p] = nil
		x.owns--
		x.w.freed[p] = time.Now()
	}
}

// crash ends the worker without a trace. Its work counts as over from now on.
func (x *worker) crash() {
	x.w.mu.Lock()
	for p := range x.w.owners {
		x.free(p)
	}
	x.crashed = true
	x.w.mu.Unlock()
	x.st.Crash()
	x.cancel(errStop)
}

// stop ends the worker in good order.
func (x *worker) stop() {
	x.cancel(errStop)
	<-x.done
}

// owned waits until every partition is owned, and shares are as fair as fair says, for at most d. It
// returns how long that took.
func (w *world) owned(d time.Duration, fair int, workers ...*worker) time.Duration {
	w.Helper()
	start := time.Now()
	for {
		sum, least, most := 0, w.partitions, 0
		w.mu.Lock()
		for _, x := range workers {
			sum, least, most = sum+x.owns, min(least, x.owns), max(most, x.owns)
		}
		w.mu.Unlock()
		if sum == w.partitions && most-least <= fair {
			return time.Since(start)
		}
		if time.Since(start) > d {
			w.Fatalf("after %v %d of %d partitions are owned, by %d to %d", d, sum, w.partitions, least, most)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// end ends all workers.
func (w *world) end(workers ...*worker) {
	for _, x := range workers {
		x.cancel(errStop)
	}
	for _, x := range workers {
		<-x.done
	}
}

// newest is the number of the newest assignment.
func (w *world) newest() uint64 {
	w.Helper()
	for s, err := range group.Observe(w.Context(), w.mem, &group.Options{Clock: clock.Go()}) {
		if err != nil {
			w.Fatal(err)
		}
		return s.Number
	}
	return 0
}

// organisers returns the workers in the order in which they organise.
func (w *world) organisers(workers []*worker) (all []*worker) {
	w.Helper()
	for s, err := range group.Observe(w.Context(), w.mem, &group.Options{Clock: clock.Go()}) {
		if err != nil {
			w.Fatal(err)
		}
		for _, m := range s.Members {
			for _, x := range workers {
				if x.name == m.Identity && !m.Expired && !m.Leaving && !x.crashed {
					all = append(all, x)
				}
			}
		}
		break
	}
	return all
}
