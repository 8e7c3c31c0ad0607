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
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var long = flag.Bool("long", test.Whole(), "explore also the scenarios that take long")

// opens opens a writer in an epoch and appends some values. Then it crashes, since its later
// steps are of no interest. While it appends, the writer's manifest update runs too.
func opens(epoch fence.Epoch, values ...string) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		wr, err := writer.Open(ctx, n.store(), fence.NewToken(epoch), n.simple())
		if err != nil {
			n.expect(err, writer.ErrFenced)
			return
		}
		n.opened(0, wr)
		for _, v := range values {
			n.appends(ctx, wr, v)
		}
		n.die()
		_ = wr.Close(ctx)
	}
}

// appends appends one record of one value, which is its cursor too.
func (n *node) appends(ctx context.Context, wr *writer.Writer, v string) {
	id := n.history().begin(op{kind: opAppend, node: n.name, epoch: wr.Epoch(), values: []string{v}, call: n.world.steps})
	off, err := wr.Append(ctx, [][]byte{[]byte(v)}, writer.Cursor([]byte(v)))
	n.appended(id, off, err)
}

// fills opens a writer, appends one record and closes it.
func (n *node) fills(epoch fence.Epoch, v string, o *writer.Options) {
	ctx := context.Background()
	wr, err := writer.Open(ctx, n.store(), fence.NewToken(epoch), o)
	if err != nil {
		panic(err)
	}
	n.opened(0, wr)
	synctest.Wait() // the writer has written its manifest
	n.appends(ctx, wr, v)
	if err := wr.Close(ctx); err != nil {
		panic(err)
	}
}

// compactor returns a simple compactor on a store.
func (n *node) compactor(st store.Store, fanIn int) *compactor.Compactor {
	c, err := compactor.New(st, &compactor.Options{Token: fence.NewToken(1), FanIn: fanIn, NoCompress: true, Settle: n.settle(), Clock: n.clock})
	if err != nil {
		panic(err)
	}
	return c
}

// past returns a setup that fills a log: epoch 1 with one record.
func past(compacted bool) func(w *world, n *node) {
	return func(w *world, n *node) {
		w.token = 3 // the greatest token that the scenarios use
		o := n.simple()
		o.Checkpoint = time.Hour
		n.fills(1, "a", o)
		if compacted {
			if _, err := n.compactor(n.store(), 0).Once(context.Background()); err != nil {
				panic(err)
			}
		}
	}
}

// folded fills a log and folds it with a compactor that crashes before it prunes.
func folded(w *world, n *node) {
	past(false)(w, n)
	if _, err := n.compactor(dying{n.store()}, 0).Once(context.Background()); !errors.Is(err, errCrashed) {
		panic(err)
	}
}

// dying is the connection of a node that crashes when it lists the pins.
type dying struct{ store.Store }

func (d dying) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	if prefix != layout.PinPrefix {
		return d.Store.List(ctx, prefix, opts)
	}
	return func(yield func(store.Info, error) bool) {
		yield(store.Info{}, crashed(&request{op: "list", key: prefix}).err)
	}
}

// replaced fills a log with two segments, named by two manifests. A merge replaces both,
// so the pruner can delete them.
func replaced(w *world, n *node) {
	past(true)(w, n)
	n.fills(2, "b", n.simple())
}

// pins pins a version (0: the newest) and reads what it names.
func pins(version uint64, ttl time.Duration, looks int) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		log, err := n.state(ctx)
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
					_, _, err = store.Read(ctx, n.store(), s.Key, &store.ReadOptions{Limit: 1 << 20, Settle: n.settle()})
				}
				if err != nil {
					n.missing(err, h, s.Key)
					return
				}
			}
		}
	}
}

// merges compacts a few times, with a pause between.
func merges(times int, apart time.Duration) func(context.Context, *node) {
	return func(ctx context.Context, n *node) {
		c := n.compactor(n.store(), 2)
		for i := range times {
			if i > 0 && clock.Sleep(ctx, n.clock, apart) != nil {
				return
			}
			_, err := c.Once(ctx)
			n.expect(err, compactor.ErrFenced)
		}
	}
}

func compactsOnce(ctx context.Context, n *node) {
	_, err := n.compactor(n.store(), 0).Once(ctx)
	n.expect(err, compactor.ErrFenced)
}

func campaigns(ctx context.Context, n *node) {
	e, err := leader.New(n.store(), "lock", &leader.Options{
		Identity: n.name, Validity: 2 * time.Second, Clock: n.clock, NoPrune: true, Hooks: leader.Hooks{Elected: func(e leader.Election) { n.won("lock/", e.Epoch) }},
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

// scenarios returns cases of which every schedule can be run. They have some thousands of
// states, the long ones tens of thousands. Two writers, one that appends, and a compactor
// that folds and prunes would be too many. So these scenarios take two of the three at a
// time, or two writers that only open. spec/log.pml and the histories have all of it at
// once.
func scenarios() []*Scenario {
	open, compact := part{"w1", opens(2)}, part{"c1", compactsOnce}
	log := []string{"format.json", "segment/", "tmp/"}                    // there is one compactor, so no other node touches its segments
	quiet := []string{"pin/", "list/", "file/"}                           // there are none
	settled := []string{"format.json", "data/", "tmp/", "list/", "file/"} // there is no writer any more
	return []*Scenario{
		{Name: "two writers open", setup: past(false), private: log, nodes: cast(open, part{"w2", opens(3)})},
		{
			Name: "a writer opens while a compactor folds and prunes", setup: past(false), private: log, long: true,
			nodes: cast(open, compact),
		},
		{
			Name: "a writer opens and appends while a compactor prunes", setup: folded, private: append(quiet, log...), long: true,
			nodes: cast(part{"w1", opens(2, "w1")}, compact),
		},
		{
			Name: "two writers open while a compactor prunes", setup: folded, private: append(quiet, log...), long: true,
			nodes: cast(open, part{"w2", opens(3)}, compact),
		},
		{
			Name: "a pin against a compactor that merges and prunes", setup: replaced, private: settled, long: true,
			nodes: cast(part{"p1", pins(0, 0, 1)}, part{"c1", merges(1, 0)}),
		},
		{
			Name: "a pin on an older version against a compactor that merges and prunes", setup: replaced, private: settled,
			nodes: func(w *world) { cast(part{"p1", pins(w.newest()-1, 0, 1)}, part{"c1", merges(1, 0)})(w) },
		},
		{
			Name: "a pin that is renewed or not against a compactor that expires it", setup: replaced, private: settled, long: true,
			ticks: map[string]int{"p1": 2, "c1": 2}, late: true,
			// The pin exists and has kept the compactor from pruning once.
			prefix: func(_ *world, next act) bool { return next.kind != tick },
			nodes:  cast(part{"p1", pins(0, manifest.MinPinTTL, 2)}, part{"c1", merges(2, manifest.MinPinTTL)}),
		},
		renewals("a takeover against renewals", 2, 4, false),
		renewals("a takeover against more renewals", 3, 5, true),
	}
}

// renewals returns a scenario with a leader a and a candidate b. Timers fire at any time:
// a's heartbeats, request timeouts and deadline, and b's reads of the lock.
func renewals(name string, a, b int, long bool) *Scenario {
	return &Scenario{
		Name: name, long: long, ticks: map[string]int{"a": a, "b": b}, late: true,
		prefix: func(w *world, next act) bool { return w.wins == 0 && next.kind != tick },
		nodes:  cast(part{"a", campaigns}, part{"b", campaigns}),
	}
}

// part is one node of a scenario.
type part struct {
	name string
	work func(context.Context, *node)
}

// cast starts the nodes of a scenario.
func cast(parts ...part) func(*world) {
	return func(w *world) {
		for _, p := range parts {
			w.boot(p.name, 1, 0, p.work)
		}
	}
}

// TestExplore runs all schedules of small cases.
func TestExplore(t *testing.T) {
	for _, s := range scenarios() {
		if s.long && !*long {
			continue // FENCEPOST_WHOLE=1 does, and make explore
		}
		t.Run(s.Name, func(t *testing.T) {
			began := time.Now()
			e, bad := Explore(t, s)
			t.Logf("%v, in %v", e, time.Since(began).Round(time.Millisecond))
			if bad != nil {
				t.Errorf("%s: %v\n%s", s.Name, bad.Err, bad.Story)
			}
			if bad == nil && e.Ends < 2 {
				t.Error("the scenario has only one schedule")
			}
		})
	}
}

// TestExploreFinds: for each deliberate fault, some schedule breaks a promise.
func TestExploreFinds(t *testing.T) {
	for name, c := range map[string]struct {
		scenario, notices string
		plan              Plan
	}{
		"the opener does not list again":      {"a writer opens and appends while a compactor prunes", "lost", Plan{Bent: "an opener that does not list again"}},
		"the pruner sees no pins":             {"a pin against a compactor that merges and prunes", "pruned", Plan{Bent: "a pruner that sees no pins"}},
		"the mark is not read":                {"a pin against a compactor that merges and prunes", "pruned", Plan{Bent: "a holder that does not read the mark"}},
		"the mark is not read, older version": {"a pin on an older version against a compactor that merges and prunes", "pruned", Plan{Bent: "a holder that does not read the mark"}},
		"both nodes take the lock":            {"a takeover against renewals", "epoch", Plan{Careless: true}},
	} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(scenarios(), func(s *Scenario) bool { return s.Name == c.scenario })
			s := scenarios()[i]
			s.Plan = c.plan
			e, bad := Explore(t, s)
			if bad == nil {
				t.Fatalf("no schedule of %v broke a promise", e)
			}
			t.Logf("after %d runs: %v", e.Runs, bad.kinds())
			if !slices.Contains(bad.kinds(), c.notices) {
				t.Errorf("expected %q, got: %v", c.notices, bad.Err)
			}
		})
	}
}
