package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// node is one process: a role, a connection to the store, a clock. After a crash another
// node with a new name takes its place.
type node struct {
	world *world
	role  string // "w1"
	name  string // "w1", then "w1.2"
	life  int
	lives int // restarts left
	work  func(context.Context, *node)
	clock *nodeClock
	off   time.Duration // error of its wall clock
	rng   *rand.Rand    // of the client; only the client's goroutine draws
	end   context.CancelCauseFunc

	dead   bool        // crashed; guarded by world.mu
	done   atomic.Bool // its client has returned
	paused bool
	direct bool           // its requests take effect at once
	until  int            // the step at which a pause ends
	weight float64        // how fast it is at present; 0: not drawn yet
	listed map[string]int // prefix → step of its last listing of those locks
	// What it may truncate, if it is a compactor.
	retains retention
	// A hash of what it was told; see world.state.
	knows, fetched uint64
}

// boot starts a process.
func (w *world) boot(role string, life, lives int, work func(context.Context, *node)) {
	n := &node{world: w, role: role, name: role, life: life, lives: lives, work: work, listed: map[string]int{}}
	if life > 1 {
		n.name = fmt.Sprintf("%s.%d", role, life)
	}
	n.rng = rand.New(rand.NewPCG(w.plan.Seed, str(n.name)))
	n.off = time.Duration(n.rng.IntN(7200)-3600) * time.Second
	base := time.Duration(n.rng.IntN(1000)) * time.Hour
	n.clock = &nodeClock{node: n, since: w.now, base: base, rate: 1000, zero: base - w.now}
	ctx, end := context.WithCancelCause(context.Background())
	n.end = end
	w.nodes = append(w.nodes, n)
	go func() {
		defer func() { n.done.Store(true) }()
		defer end(nil)
		work(ctx, n)
	}()
}

// crash ends a process at once. Its goroutines run on for a moment, and all their
// requests fail. Their results do not count.
func (w *world) crash(n *node) {
	w.mu.Lock()
	n.dead = true
	w.hush(n)
	w.mu.Unlock()
	n.end(errCrashed)
	w.boot(n.role, n.life+1, n.lives-1, n.work)
}

// hush fails all requests of a dead node. A goroutine that gets an error may cancel other
// requests of the node, so hush first answers all of them and then returns. The caller
// holds mu.
func (w *world) hush(n *node) {
	var rest []*request
	for _, r := range w.pending {
		if r.node != n || r.gone {
			rest = append(rest, r)
			continue
		}
		if r.landed == 0 && !r.reads() && !r.step() {
			w.late = append(w.late, r)
		}
		r.gone = true
		r.answer(crashed(r))
	}
	w.pending = rest
}

// step waits until it is the client's turn. It returns false when the history ends.
func (n *node) step(ctx context.Context) bool {
	rep := n.do(ctx, &request{op: opStep, key: "on"})
	return rep.err == nil && !n.world.closing
}

// settle returns retry options without jitter, because the scheduler decides when timers
// fire.
func (n *node) settle() *store.SettleOptions {
	o := &store.SettleOptions{
		Attempt: 5 * time.Second, Backoff: 1, MaxBackoff: 1, Reads: 6,
		Clock: n.clock, Random: func() float64 { return 0 },
	}
	if n.world.plan.Patient {
		o.Backoff, o.MaxBackoff = 20*time.Millisecond, time.Second
	}
	return o
}

// store returns the node's connection to the store.
func (n *node) store() store.Store { return client{n} }

// live reports whether the node runs: it has not crashed and its client has not ended.
func (n *node) live() bool { return !n.dead && !n.done.Load() }

// state opens the log's manifests.
func (n *node) state(ctx context.Context) (*state.Log, error) {
	return state.Open(ctx, n.store(), &state.Options{Settle: n.settle(), Clock: n.clock})
}

// die crashes the node without a restart.
func (n *node) die() {
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	n.dead = true
	n.end(errCrashed)
}

// won notes that the node was elected. No other node may have won that epoch. No later
// epoch may have existed at the node's last listing of the locks.
func (n *node) won(prefix string, epoch fence.Epoch) {
	if n.crashed() {
		return
	}
	w := n.world
	w.wins++
	w.tellf(n.name, "leads in epoch %d of %s", epoch, prefix)
	if other := w.winners[lock{prefix, epoch, 0}]; other != nil && other != n {
		w.history.broken("epoch", "%s was elected in epoch %d of %s, which %s had won before", n.name, epoch, prefix, other.name)
	}
	w.winners[lock{prefix, epoch, 0}] = n
	for _, l := range w.locks {
		if l.prefix == prefix && l.epoch > epoch && l.step < n.listed[prefix] {
			w.history.broken("epoch", "%s was elected in epoch %d of %s, although epoch %d existed since step %d", n.name, epoch, prefix, l.epoch, l.step)
			break
		}
	}
}

// lock is a leader's lock that was created.
type lock struct {
	prefix string
	epoch  fence.Epoch
	step   int
}

// election notes listings of locks and created locks.
func (w *world) election(r *request) {
	at := strings.IndexByte(r.key, '/') + 1
	prefix, number := r.key[:at], r.key[at:]
	if !strings.HasSuffix(prefix, "lock/") {
		return
	}
	switch {
	case r.op == "list" && r.page > 0: // the listing began with its first page
	case r.op == "list":
		at := w.steps
		if r.walked {
			at = r.walkedAt
		}
		r.node.listed[prefix] = at
	case r.op == "put" && r.cond == store.IfAbsent() && r.rep.err == nil:
		if epoch, ok := layout.ParseNumber(strings.TrimSuffix(number, ".json")); ok {
			w.locks = append(w.locks, lock{prefix, fence.Epoch(epoch), w.steps})
		}
	}
}
