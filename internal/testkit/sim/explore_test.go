package sim

import (
	"context"
	"errors"
	"flag"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var long = flag.Bool("long", false, "explore also the scenarios that take minutes")

// opens opens a writer in an epoch and crashes: what it might still do is of no
// interest.
func opens(epoch uint64) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		wr, err := writer.Open(ctx, n.store(), fence.NewToken(epoch), &writer.Options{
			InFlight: 1, NoCompress: true, Checkpoint: -1, Settle: n.settle(), Clock: n.clock,
		})
		if err != nil {
			n.expect(err, writer.ErrFenced)
			return
		}
		n.opened(0, wr)
		n.die()
		_ = wr.Close(ctx)
	}
}

// opensAndAppends goes on with one append, and its keeper with the manifest.
func opensAndAppends(epoch uint64) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		wr, err := writer.Open(ctx, n.store(), fence.NewToken(epoch), &writer.Options{
			InFlight: 1, NoCompress: true, Checkpoint: -1, Settle: n.settle(), Clock: n.clock,
		})
		if err != nil {
			n.expect(err, writer.ErrFenced)
			return
		}
		n.opened(0, wr)
		id := n.history().begin(op{kind: opAppend, node: n.name, epoch: epoch, values: []string{n.name}, call: n.world.steps})
		off, err := wr.Append(ctx, [][]byte{[]byte(n.name)}, writer.Cursor([]byte(n.name)))
		n.appended(id, off, err)
		n.die()
		_ = wr.Close(ctx)
	}
}

// past fills a log: epoch 1 with two records.
func past(compacted bool) func(w *world, n *node) {
	return func(w *world, n *node) {
		w.token = 3 // the greatest that is used
		ctx := context.Background()
		wr, err := writer.Open(ctx, n.store(), fence.NewToken(1), &writer.Options{InFlight: 1, NoCompress: true, Checkpoint: time.Hour, Settle: n.settle(), Clock: n.clock})
		if err != nil {
			panic(err)
		}
		n.opened(0, wr)
		synctest.Wait() // the manifest that says so is written
		for _, v := range []string{"a"} {
			id := w.history.begin(op{kind: opAppend, node: n.name, epoch: 1, values: []string{v}})
			off, err := wr.Append(ctx, [][]byte{[]byte(v)}, writer.Cursor([]byte(v)))
			n.appended(id, off, err)
		}
		if err := wr.Close(ctx); err != nil {
			panic(err)
		}
		if compacted {
			c, _ := compactor.New(n.store(), &compactor.Options{NoCompress: true, Settle: n.settle(), Clock: n.clock})
			if _, err := c.Once(ctx, fence.NewToken(1)); err != nil {
				panic(err)
			}
		}
	}
}

// folded fills a log and folds it, by a compactor that dies before it prunes.
func folded(w *world, n *node) {
	past(false)(w, n)
	c, _ := compactor.New(dying{n.store()}, &compactor.Options{NoCompress: true, Settle: n.settle(), Clock: n.clock})
	if _, err := c.Once(context.Background(), fence.NewToken(1)); !errors.Is(err, errCrashed) {
		panic(err)
	}
}

// dying is the connection of a node that dies when it is about to look at the pins.
type dying struct{ store.Store }

func (d dying) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	if prefix != layout.PinPrefix {
		return d.Store.List(ctx, prefix, opts)
	}
	return func(yield func(store.Info, error) bool) {
		yield(store.Info{}, crashed(&request{op: "list", key: prefix}).err)
	}
}

// replaced fills a log with two segments in two versions of the manifest: who merges
// them drops them, and prunes.
func replaced(w *world, n *node) {
	ctx := context.Background()
	past(true)(w, n)
	wr, err := writer.Open(ctx, n.store(), fence.NewToken(2), &writer.Options{InFlight: 1, NoCompress: true, Checkpoint: -1, Settle: n.settle(), Clock: n.clock})
	if err != nil {
		panic(err)
	}
	n.opened(0, wr)
	synctest.Wait()
	id := w.history.begin(op{kind: opAppend, node: n.name, epoch: 2, values: []string{"b"}})
	off, err := wr.Append(ctx, [][]byte{[]byte("b")}, writer.Cursor([]byte("b")))
	n.appended(id, off, err)
	if err := wr.Close(ctx); err != nil {
		panic(err)
	}
}

// pins holds a version, 0 the newest, and reads what it names.
func pins(version uint64, ttl time.Duration, looks int) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		log, err := state.Open(ctx, n.store(), &state.Options{Settle: n.settle(), Clock: n.clock})
		if err != nil {
			n.expect(err)
			return
		}
		p, err := log.Pin(ctx, &state.PinOptions{Version: version, Name: "pin", TTL: ttl})
		if err != nil {
			var gone []error
			if version > 0 {
				gone = append(gone, state.ErrPruned)
			}
			n.expect(err, gone...)
			return
		}
		h := n.world.held(n, p.Version())
		for i := range looks {
			if i > 0 {
				if clock.Sleep(ctx, n.clock, ttl/3) != nil {
					return
				}
				if err := p.Renew(ctx); err != nil {
					n.expect(err, manifest.ErrPinLost)
					break
				}
			}
			for s, err := range log.Segments(ctx, p.Manifest(), 0) {
				if err == nil {
					_, _, err = store.ReadAll(ctx, n.store(), s.Key, 1<<20, n.settle())
				}
				if err != nil {
					n.missing(err, h, s.Key)
					return
				}
			}
		}
	}
}

// newest is the number of the newest manifest.
func (w *world) newest() uint64 {
	var top uint64
	for key := range w.bucket.objects {
		if v, ok := layout.ParseManifestKey(key); ok {
			top = max(top, v)
		}
	}
	return top
}

// merges compacts a few times, as long apart as a pin lives.
func merges(times int, apart time.Duration) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		c, _ := compactor.New(n.store(), &compactor.Options{FanIn: 2, NoCompress: true, Settle: n.settle(), Clock: n.clock})
		for i := range times {
			if i > 0 && clock.Sleep(ctx, n.clock, apart) != nil {
				return
			}
			_, err := c.Once(ctx, fence.NewToken(1))
			n.expect(err, compactor.ErrFenced)
		}
	}
}

func compactsOnce(ctx context.Context, n *node) {
	c, _ := compactor.New(n.store(), &compactor.Options{NoCompress: true, Settle: n.settle(), Clock: n.clock})
	_, err := c.Once(ctx, fence.NewToken(1))
	n.expect(err, compactor.ErrFenced)
}

func campaigns(ctx context.Context, n *node) {
	e, err := leader.New(n.store(), "lock", &leader.Options{
		Identity: n.name, Validity: 2 * time.Second, Clock: n.clock, Seed: 1, NoPrune: true, Hooks: leader.Hooks{Elected: func(e leader.Election) { n.won("lock/", uint64(e.Epoch)) }},
	})
	if err != nil {
		panic(err)
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		return
	}
	select {
	case <-term.Context().Done():
	case <-ctx.Done():
	}
	_ = term.Resign(context.Background())
}

// scenarios are small enough that every schedule can be carried out: some thousands
// of states, some ten thousand of those that are long. Two writers, one of which
// appends, and a compactor that folds and prunes at the same time are too many for
// that: here they are taken by pairs, and two that only open while a third prunes. All
// of it at once is in spec/log.pml, and in the histories.
func scenarios() []*Scenario {
	writers := func(w *world) {
		w.boot("w1", 0, 1, 0, opens(2))
		w.boot("w2", 1, 1, 0, opens(3))
	}
	log := []string{"format.json", "segment/", "tmp/"}                    // one compactor, so its segments are its own
	quiet := []string{"pin/", "list/", "file/"}                           // nobody has any
	settled := []string{"format.json", "data/", "tmp/", "list/", "file/"} // no writer is there any more
	return []*Scenario{
		{Name: "two writers open", setup: past(false), private: log, nodes: writers},
		{
			Name: "a writer opens while a compactor folds and prunes", setup: past(false), private: log,
			nodes: func(w *world) {
				w.boot("w1", 0, 1, 0, opens(2))
				w.boot("c1", 0, 1, 0, compactsOnce)
			},
		},
		{
			Name: "a writer opens and appends while a compactor prunes", setup: folded, private: append(quiet, log...), long: true,
			nodes: func(w *world) {
				w.boot("w1", 0, 1, 0, opensAndAppends(2))
				w.boot("c1", 0, 1, 0, compactsOnce)
			},
		},
		{
			Name: "two writers open while a compactor prunes", setup: folded, private: append(quiet, log...), long: true,
			nodes: func(w *world) {
				writers(w)
				w.boot("c1", 0, 1, 0, compactsOnce)
			},
		},
		{
			Name: "a pin against a compactor that merges and prunes", setup: replaced, private: settled,
			nodes: func(w *world) {
				w.boot("p1", 0, 1, 0, pins(0, 0, 1))
				w.boot("c1", 0, 1, 0, merges(1, 0))
			},
		},
		{
			Name: "a pin on an older version against a compactor that merges and prunes", setup: replaced, private: settled,
			nodes: func(w *world) {
				w.boot("p1", 0, 1, 0, pins(w.newest()-1, 0, 1))
				w.boot("c1", 0, 1, 0, merges(1, 0))
			},
		},
		{
			Name: "a pin that is renewed or not against a compactor that takes it away", setup: replaced, private: settled, long: true,
			ticks: map[string]int{"p1": 2, "c1": 2}, late: true,
			// The pin is there, and has kept the compactor from pruning once.
			prefix: func(_ *world, next act) bool { return next.kind != tick },
			nodes: func(w *world) {
				w.boot("p1", 0, 1, 0, pins(0, manifest.MinPinTTL, 2))
				w.boot("c1", 0, 1, 0, merges(2, manifest.MinPinTTL))
			},
		},
		renewals("a take-over against renewals", 2, 4, false),
		renewals("a take-over against more renewals", 3, 5, true),
	}
}

// renewals is a leader a, and b who wants to be next. Timers fire whenever they
// like: a's heartbeats, requests and deadline, b's looks at the lock.
func renewals(name string, a, b int, long bool) *Scenario {
	return &Scenario{
		Name: name, long: long, ticks: map[string]int{"a": a, "b": b}, late: true,
		prefix: func(w *world, next act) bool { return w.wins == 0 && next.kind != tick },
		nodes: func(w *world) {
			w.boot("a", 0, 1, 0, campaigns)
			w.boot("b", 1, 1, 0, campaigns)
		},
	}
}

// TestExplore carries out all schedules of small cases.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine runs at a time: the race detector has nothing to see, and plain tests take them all")
	}
	for _, s := range scenarios() {
		if s.long && !*long {
			continue // make explore
		}
		t.Run(s.Name, func(t *testing.T) {
			began := time.Now()
			e, bad := Explore(t, s)
			t.Logf("%v, in %v", e, time.Since(began).Round(time.Millisecond))
			if bad != nil {
				t.Errorf("%s: %v\n%s", s.Name, bad.Err, bad.Story)
			}
			if bad == nil && e.Ends < 2 {
				t.Error("there was nothing to decide")
			}
		})
	}
}

// TestExploreFinds: of all schedules there is one that shows what is done wrong.
func TestExploreFinds(t *testing.T) {
	for name, c := range map[string]struct {
		scenario, notices string
		plan              Plan
	}{
		"the opener does not look again": {"a writer opens and appends while a compactor prunes", "lost", Plan{Bent: "an opener that does not look again"}},
		"the pruner sees no pins":        {"a pin against a compactor that merges and prunes", "pruned", Plan{Bent: "a pruner that sees no pins"}},
		"the mark is not looked at":      {"a pin against a compactor that merges and prunes", "pruned", Plan{Bent: "a holder that does not look at the mark"}},
		"the same, of an older version":  {"a pin on an older version against a compactor that merges and prunes", "pruned", Plan{Bent: "a holder that does not look at the mark"}},
		"a lock is taken by both":        {"a take-over against renewals", "epoch", Plan{Careless: true}},
	} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(scenarios(), func(s *Scenario) bool { return s.Name == c.scenario })
			s := scenarios()[i]
			s.Plan = c.plan
			e, bad := Explore(t, s)
			if bad == nil {
				t.Fatalf("nothing was found in %v", e)
			}
			t.Logf("after %d runs: %v", e.Runs, bad.kinds())
			if !slices.Contains(bad.kinds(), c.notices) {
				t.Errorf("it is not %s that was found: %v", c.notices, bad.Err)
			}
		})
	}
}
