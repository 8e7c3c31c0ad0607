package chase_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/chase"
)

func always() bool { return true }

func refused() error { return &store.Error{Op: "put", Key: "k", Kind: store.ErrPrecondition} }

// counter is a store of one key whose versions are numbers. It checks each version.
type counter struct {
	mu  sync.Mutex
	now int
}

func (c *counter) swap(at *chase.Step) (store.Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.Version != version(c.now) {
		return store.Info{}, refused()
	}
	c.now++
	return store.Info{Version: version(c.now)}, nil
}

func version(n int) store.Version { return store.Version(fmt.Sprint(n)) }

func TestChase(t *testing.T) {
	c := &counter{now: 7}
	r := chase.Run(8, 1000, version(7), always, func(_ int, at *chase.Step) (store.Info, error) {
		if at.Version != version(7+at.N) {
			t.Errorf("step %d begins with version %s", at.N, at.Version)
		}
		return c.swap(at)
	})
	if r.Won != c.now-7 || r.Won < 1000 || r.Won > 1008 || r.Twice != nil || r.Err != nil {
		t.Errorf("%+v, the counter is at %d", r, c.now)
	}
}

// Each write waits until all writers have come to the same step, and all but one are refused.
func TestLosersAreCounted(t *testing.T) {
	const writers = 4
	var mu sync.Mutex
	met := map[int]chan struct{}{}
	came := map[int]int{}
	c := new(counter)
	r := chase.Run(writers, 1, version(0), always, func(_ int, at *chase.Step) (store.Info, error) {
		mu.Lock()
		if met[at.N] == nil {
			met[at.N] = make(chan struct{})
		}
		all := met[at.N]
		if came[at.N]++; came[at.N] == writers {
			close(all)
		}
		mu.Unlock()
		<-all
		return c.swap(at)
	})
	if r.Won != 1 || r.Lost < writers-1 {
		t.Errorf("%+v", r)
	}
}

func TestTwoWinners(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	first := func(_ int, at *chase.Step) (store.Info, error) {
		if at.N == 0 {
			both.Done()
			both.Wait()
		}
		return store.Info{Version: "next"}, nil
	}
	if r := chase.Run(2, 1<<30, "first", always, first); r.Twice == nil || r.Twice.N != 0 || r.Twice.Version != "first" {
		t.Errorf("%+v", r)
	}
}

func TestEnds(t *testing.T) {
	lost := errors.New("no answer")
	if r := chase.Run(3, 1<<30, "", always, func(int, *chase.Step) (store.Info, error) { return store.Info{}, lost }); !errors.Is(r.Err, lost) || r.Won != 0 {
		t.Errorf("after an error: %+v", r)
	}
	// A store that refuses everything.
	asked := 0
	var mu sync.Mutex
	more := func() bool {
		mu.Lock()
		defer mu.Unlock()
		asked++
		return asked < 2
	}
	if r := chase.Run(2, 1<<30, "", more, func(int, *chase.Step) (store.Info, error) { return store.Info{}, refused() }); r.Won != 0 || r.Lost < 100 {
		t.Errorf("without time: %+v", r)
	}
}
