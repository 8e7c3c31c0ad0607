package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

const validity = lock.DefaultValidity

// world is one store, and processes that use it, in a bubble of virtual time.
type world struct {
	*testing.T
	mem    *memstore.Store
	faulty *faultstore.Store
}

// slow makes each request take 28 ms, as S3 does.
func slow(faultstore.Op) faultstore.Fault {
	return faultstore.Fault{Delay: 14 * time.Millisecond, ReplyDelay: 14 * time.Millisecond}
}

func inWorld(t *testing.T, opts faultstore.Options, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		opts.Clock = clock.Go()
		mem := memstore.New(&memstore.Options{Clock: clock.Go(), ContentVersions: true})
		test(&world{T: t, mem: mem, faulty: faultstore.New(mem, &opts)})
	})
}

// process is one client with its own clock.
type process struct {
	*lock.Locker
	w     *world
	name  string
	st    *faultstore.Store
	clock *fixture.Freezable
}

func (w *world) process(name string) *process {
	w.Helper()
	return w.processOn(name, nil)
}

// processOn is a process with a clock that the test moves.
func (w *world) processOn(name string, c clock.Clock) *process {
	w.Helper()
	p := &process{w: w, name: name, st: w.faulty.Client(name), clock: &fixture.Freezable{}}
	if c == nil {
		c = p.clock
	}
	var err error
	if p.Locker, err = lock.New(p.st, "locks", &lock.Options{Identity: name, Clock: c}); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(p.close)
	return p
}

// close ends a process, whatever it does.
func (p *process) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = p.Close(ctx)
}

// freeze stops a process, with its clock if stops is true, until the function that it returns is called.
func (p *process) freeze(stops bool) (thaw func()) {
	p.clock.Freeze(stops)
	resume := p.st.Pause()
	return func() { p.clock.Thaw(); resume() }
}

// acquire acquires a name within a minute, or fails the test.
func (p *process) acquire(name string) *lock.Lock {
	p.w.Helper()
	ctx, cancel := context.WithTimeout(p.w.Context(), time.Minute)
	defer cancel()
	k, err := p.Acquire(ctx, name)
	if err != nil {
		p.w.Fatalf("%s: %v", p.name, err)
	}
	return k
}

func (p *process) release(k *lock.Lock) {
	p.w.Helper()
	if err := k.Release(p.w.Context()); err != nil {
		p.w.Fatalf("%s: %v", p.name, err)
	}
}

// cycle acquires and releases a name, and returns the token.
func (p *process) cycle(name string) fence.Epoch {
	p.w.Helper()
	k := p.acquire(name)
	p.release(k)
	return k.Token().Epoch()
}

// requests are how many were made since the last call.
func (w *world) requests() int {
	n := w.faulty.Counts().Of("", "")
	w.faulty.ResetCounts()
	return n
}

// same are names that share an object with name.
func sameBucket(t *testing.T, name string) string {
	t.Helper()
	for i := range 1 << 20 {
		other := fmt.Sprintf("other-%d", i)
		if lock.BucketKey(other) == lock.BucketKey(name) {
			return other
		}
	}
	t.Fatal("no such name")
	return ""
}

func name(i int) string { return fmt.Sprintf("name-%d", i) }

// objects counts objects below a prefix.
func (w *world) objects(prefix string) (n int) {
	for _, err := range w.mem.List(w.Context(), prefix, nil) {
		if err != nil {
			w.Fatal(err)
		}
		n++
	}
	return n
}

// sameBucketNot is a name in another object.
func sameBucketNot(t *testing.T, name string) string {
	t.Helper()
	if other := name + "-2"; lock.BucketKey(other) != lock.BucketKey(name) {
		return other
	}
	return name + "-3"
}

// sweep deletes the objects of all sessions, as a process does after a day.
func (w *world) sweep() {
	for info, err := range w.mem.List(w.Context(), "locks/session/", nil) {
		if err != nil || w.mem.Delete(w.Context(), info.Key) != nil {
			w.Fatal(err)
		}
	}
}
