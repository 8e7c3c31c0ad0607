package state

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/testkit/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

var histories = flag.Int("histories", 8, "how many random histories are made")

// TestRandomHistories lets updaters of both roles, in several epochs and two with
// one token, loose on a store that does everything that a store may do, beside a
// pruner that leaves nothing but the newest manifest, and checks that
//
//   - an update that returned nil is in the history, once,
//   - one that was fenced or of unknown outcome is there once or not at all,
//   - any other is not there,
//   - reads are linearizable: each sees every update that had returned before it
//     began, and all that any read saw that had ended before it began.
func TestRandomHistories(t *testing.T) {
	base := rand.Uint64() >> 16
	var applied, fenced, unknown, holes atomic.Int64
	var all sync.WaitGroup
	for i := range *histories {
		all.Go(func() {
			h := newHistory(t, base+uint64(i))
			h.run()
			applied.Add(int64(h.applied))
			fenced.Add(int64(h.fenced))
			unknown.Add(int64(h.unknown))
			holes.Add(int64(h.holes))
		})
	}
	all.Wait()
	t.Logf("%d histories from seed %d: %d applied, %d fenced, %d unknown; junk in %d holes", *histories, base, applied.Load(), fenced.Load(), unknown.Load(), holes.Load())
	if applied.Load() == 0 || fenced.Load() == 0 || unknown.Load() == 0 {
		t.Error("these histories prove nothing: some outcome never came up")
	}
}

type history struct {
	t      *testing.T
	seed   uint64
	faults *faultstore.Store

	mu sync.Mutex
	// done are the updates that have returned nil, certain not to have been
	// applied, or maybe.
	done, never, maybe []string
	longest            []string // the longest history that any ended read has seen

	applied, fenced, unknown, holes int
}

func newHistory(t *testing.T, seed uint64) *history {
	rng := rand.New(rand.NewPCG(seed, 0))
	level := 0.02 + rng.Float64()*0.1
	st, _ := fixture.Faults(&faultstore.Options{Seed: seed, Rates: faultstore.Rates{
		Fail: level, LoseReply: level, Echo: level, Late: level, Duplicate: level, Break: level,
		LateOps: 1 << rng.IntN(9), MaxDelay: time.Duration(rng.IntN(300)) * time.Microsecond,
	}})
	return &history{t: t, seed: seed, faults: st}
}

func (h *history) errorf(format string, args ...any) {
	h.t.Errorf("seed %d: %s", h.seed, fmt.Sprintf(format, args...))
}

func (h *history) run() {
	var updaters, others sync.WaitGroup
	for i, who := range []struct {
		role  layout.Role
		epoch uint64
	}{{layout.Writer, 1}, {layout.Writer, 1}, {layout.Writer, 2}, {layout.Compactor, 1}, {layout.Compactor, 2}, {layout.Writer, 3}} {
		updaters.Go(func() {
			rng := rand.New(rand.NewPCG(h.seed, uint64(i+1)))
			h.update(rng, h.faults.Client(fmt.Sprintf("updater %d", i)), who.role, who.epoch)
		})
	}
	ctx, stop := context.WithCancel(h.t.Context())
	others.Go(func() {
		for ctx.Err() == nil {
			if _, err := prune(ctx, h.faults.Client("pruner")); err != nil && ctx.Err() == nil && !passing(err) {
				h.errorf("pruning: %v", err)
			}
		}
	})
	for i := range 2 {
		others.Go(func() {
			l := testOpen(h.faults.Client(fmt.Sprintf("reader %d", i)))
			for ctx.Err() == nil {
				h.read(ctx, l)
			}
		})
	}
	updaters.Wait()
	stop()
	others.Wait()
	h.faults.SetRates(faultstore.Rates{})
	mustPrune(h.t, h.faults)
	h.faults.Release(h.t.Context(), nil)
	h.read(h.t.Context(), testOpen(h.faults))
	h.judge()
}

// passing tells errors of a store that fails too often in a row.
func passing(err error) bool { return errors.Is(err, faultstore.ErrInjected) }

func (h *history) update(rng *rand.Rand, st store.Store, role layout.Role, epoch uint64) {
	// Successors come while those before them are still at it.
	_ = clock.Sleep(h.t.Context(), clock.System(), time.Duration(epoch-1)*5*time.Millisecond)
	u, err := testOpen(st).Updater(role, fence.NewToken(epoch))
	if err != nil {
		h.errorf("%v", err)
		return
	}
	for range 12 {
		id := uuid.NewString()
		ctx, cancel := h.t.Context(), context.CancelFunc(func() {})
		if rng.IntN(4) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(4000))*time.Microsecond)
		}
		m, err := u.Update(ctx, effect(id))
		cancel()
		h.note(id, m, err, ctx.Err() != nil)
	}
}

func (h *history) note(id string, m *Manifest, err error, late bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil:
		h.applied++
		h.done = append(h.done, id)
		if count(effects(m), id) != 1 {
			h.errorf("%s returned without its effect", id[:4])
		}
	case errors.Is(err, store.ErrUnknown):
		h.unknown++
		h.maybe = append(h.maybe, id)
		if !late && !passing(err) {
			h.errorf("unknown without need: %v", err)
		}
	case errors.Is(err, fence.ErrFenced):
		h.fenced++
		h.maybe = append(h.maybe, id)
	case late || passing(err):
		h.never = append(h.never, id)
	default:
		h.errorf("update: %v", err)
	}
}

func (h *history) read(ctx context.Context, l *Log) {
	h.mu.Lock()
	done, longest := slices.Clone(h.done), h.longest
	h.mu.Unlock()
	m, err := l.Newest(ctx)
	if err != nil {
		if ctx.Err() == nil && !passing(err) {
			h.errorf("reading: %v", err)
		}
		return
	}
	got := effects(m)
	if len(got) < len(longest) || !slices.Equal(got[:len(longest)], longest) {
		h.errorf("a read saw %s after one that saw %s", short(got), short(longest))
	}
	for _, id := range done {
		if !slices.Contains(got, id) {
			h.errorf("a read misses %s, which had returned: %s", id[:4], short(got))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(got) > len(h.longest) {
		h.longest = got
	}
}

func (h *history) judge() {
	ids := h.longest
	for _, id := range h.done {
		if n := count(ids, id); n != 1 {
			h.errorf("%s was applied %d times", id[:4], n)
		}
	}
	for _, id := range h.never {
		if count(ids, id) != 0 {
			h.errorf("%s failed for certain and was applied", id[:4])
		}
	}
	for _, id := range h.maybe {
		if n := count(ids, id); n > 1 {
			h.errorf("%s was applied %d times", id[:4], n)
		}
	}
	kept, err := testOpen(h.faults).Versions(h.t.Context())
	if err != nil {
		h.errorf("%v", err)
	}
	h.holes = len(kept) - 1
	if n := h.faults.OpenBodies(); n != 0 {
		h.errorf("%d bodies are open", n)
	}
}
