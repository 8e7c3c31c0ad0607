package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/faultstore"
)

// wild is what a bad day does to requests.
var wild = faultstore.Rates{
	Fail: .03, LoseReply: .03, Echo: .02, Late: .02, Duplicate: .02, Break: .01, MaxDelay: 80 * time.Millisecond,
}

// history is what some processes do to a few names.
type history struct {
	*world
	mu    sync.Mutex
	held  map[*lock.Lock]*process
	stood map[*process]bool // its clock stood still once
	top   map[string]fence.Epoch
	gates map[string]*fence.Gate
	wins  int
	fence int // effects of lower tokens that were refused
}

// begun is the greatest token of a name that somebody has been told so far.
func (h *history) begun(name string) fence.Epoch {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.top[name]
}

// won checks an acquisition, whose call began when the greatest token was before.
func (h *history) won(p *process, k *lock.Lock, before fence.Epoch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	token := k.Token().Epoch()
	if token <= before {
		h.Errorf("%s got token %d, and %d was given before its call began", p.name, token, before)
	}
	h.top[k.Name()] = max(h.top[k.Name()], token)
	h.wins++
	for other, q := range h.held {
		if other.Name() != k.Name() {
			continue
		}
		if other.Token() == k.Token() {
			h.Errorf("%s and %s got token %d", p.name, q.name, token)
		}
		if !h.stood[p] && !h.stood[q] && k.Check(0) == nil && other.Check(0) == nil {
			h.Errorf("%s and %s both hold %s, with tokens %d and %d", p.name, q.name, k.Name(), token, other.Token().Epoch())
		}
	}
	h.held[k] = p
}

// effect is what a holder writes to a place that compares tokens.
func (h *history) effect(k *lock.Lock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	gate := h.gates[k.Name()]
	if gate == nil {
		gate = &fence.Gate{}
		h.gates[k.Name()] = gate
	}
	highest := gate.Highest()
	err := gate.Do(h.Context(), k.Token().Epoch(), func() error { return nil })
	if refused := err != nil; refused != (k.Token().Epoch() < highest) {
		h.Errorf("token %v after %v: %v", k.Token(), highest, err)
	} else if refused {
		h.fence++
	}
}

func (h *history) run(p *process, random *rand.Rand, until time.Time) {
	for time.Now().Before(until) {
		name := fmt.Sprint(random.IntN(2))
		before := h.begun(name)
		ctx, cancel := context.WithTimeout(h.Context(), time.Duration(random.Int64N(int64(time.Minute))))
		k, err := p.Acquire(ctx, name)
		cancel()
		if err != nil {
			continue
		}
		h.won(p, k, before)
		if k.Check(0) == nil {
			h.effect(k)
		}
		time.Sleep(time.Duration(random.Int64N(int64(10 * time.Second))))
		if k.Check(0) == nil {
			h.effect(k)
		}
		h.mu.Lock()
		delete(h.held, k) // the work has ended
		h.mu.Unlock()
		ctx, cancel = context.WithTimeout(h.Context(), 5*time.Second)
		_ = k.Release(ctx)
		cancel()
	}
}

// TestHistories: four processes want two names, in a store on a bad day. They are frozen again and again, some with their
// clocks. Tokens rise; nobody believes to hold what another one does, unless a clock stood still.
func TestHistories(t *testing.T) {
	wins, refused := 0, 0
	for seed := range uint64(test.Of(40, 10_000)) {
		inWorld(t, faultstore.Options{Seed: seed, Rates: wild}, func(w *world) {
			h := &history{world: w, held: map[*lock.Lock]*process{}, stood: map[*process]bool{}, top: map[string]fence.Epoch{}, gates: map[string]*fence.Gate{}}
			random := rand.New(rand.NewPCG(seed, 1))
			until := time.Now().Add(5 * time.Minute)
			var wg sync.WaitGroup
			for i := range 4 {
				p := w.process(name(i))
				r := rand.New(rand.NewPCG(seed, uint64(i)+2))
				wg.Go(func() { h.run(p, r, until) })
				stands := seed%2 == 1 && i == 0
				fr := rand.New(rand.NewPCG(seed, uint64(i)+100))
				wg.Go(func() {
					for time.Now().Before(until) {
						time.Sleep(time.Duration(fr.Int64N(int64(time.Minute))))
						if stands {
							h.mu.Lock()
							h.stood[p] = true
							h.mu.Unlock()
						}
						thaw := p.freeze(stands)
						time.Sleep(time.Duration(fr.Int64N(int64(40 * time.Second))))
						thaw()
					}
				})
			}
			if random.IntN(2) == 0 {
				wg.Go(func() {
					time.Sleep(time.Duration(random.Int64N(int64(4 * time.Minute))))
					w.sweep()
				})
			}
			wg.Wait()
			w.faulty.SetRates(faultstore.Rates{})
			// What nobody holds can be acquired in the end, whatever was given up.
			for i := range 2 {
				p := w.process(name(10 + i))
				before := h.begun(fmt.Sprint(i))
				if k := p.acquire(fmt.Sprint(i)); k.Token().Epoch() <= before {
					t.Errorf("seed %d: token %v after %v", seed, k.Token(), before)
				}
			}
			wins, refused = wins+h.wins, refused+h.fence
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d acquisitions; %d effects were refused because of a lower token", wins, refused)
	if wins < 100 {
		t.Error("too few were tried")
	}
}

// TestFaultAtEveryRequest loses, delays and repeats each request of a few turns.
func TestFaultAtEveryRequest(t *testing.T) {
	faults := []faultstore.Fault{
		{Err: faultstore.ErrReset}, {Drop: true, Err: faultstore.ErrUnavailable}, {Err: faultstore.ErrEcho}, {Err: faultstore.ErrConflict},
		{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{Ops: 3}}, {Late: &faultstore.Late{Ops: 4}},
		{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{After: 20 * time.Second, Copies: 2}},
	}
	for f, fault := range faults {
		for at := 1; at <= 24; at++ {
			n := 0
			hook := func(op faultstore.Op) faultstore.Fault {
				if n = op.N; op.N == at && (op.Kind == faultstore.Put || fault.Late == nil && !errors.Is(fault.Err, faultstore.ErrEcho)) {
					return fault
				}
				return faultstore.Fault{}
			}
			inWorld(t, faultstore.Options{Hook: hook}, func(w *world) {
				a, b := w.process("a"), w.process("b")
				last := fence.Epoch(0)
				for range 2 {
					k := a.acquire("invoices")
					time.Sleep(8 * time.Second) // a heartbeat
					if err := k.Check(0); err != nil {
						t.Errorf("fault %d at request %d: %v", f, at, err)
					}
					a.release(k)
					next := b.acquire("invoices")
					b.release(next)
					if k.Token().Epoch() <= last || next.Token().Epoch() <= k.Token().Epoch() {
						t.Errorf("fault %d at request %d: tokens %d, %v, %v", f, at, last, k.Token(), next.Token())
					}
					last = next.Token().Epoch()
				}
			})
			if n < at {
				break
			}
		}
	}
}
