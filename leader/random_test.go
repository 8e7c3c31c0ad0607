package leader_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// audit wraps the store below all faults. It sees each write that is applied, also
// those that land late.
type audit struct {
	store.Store
	*testing.T
	mu      sync.Mutex
	highest fence.Epoch // confirmed epoch
	won     map[fence.Epoch]string
	renewed map[fence.Epoch]int
	holes   int
}

func (a *audit) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	info, err := a.Store.Put(ctx, key, body, opts)
	if err != nil {
		return info, err
	}
	var r struct {
		Epoch    fence.Epoch
		State    string
		Holder   string
		Renewals int
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&r); err != nil {
		a.Errorf("%s: %v", key, err)
	}
	a.renewed[r.Epoch]++
	switch {
	case r.Epoch >= a.highest:
	case opts.Condition() == store.IfAbsent():
		a.holes++
	case r.State != "expired" && r.Renewals > 0:
		a.Errorf("%s renewed epoch %d when %d was confirmed", r.Holder, r.Epoch, a.highest)
	}
	return info, nil
}

// elected notes a confirmed win.
func (a *audit) elected(epoch fence.Epoch, who string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other := a.won[epoch]; other != "" {
		a.Errorf("epoch %d won by %s and by %s", epoch, other, who)
	}
	if epoch <= a.highest {
		a.Errorf("epoch %d won by %s after %d", epoch, who, a.highest)
	}
	a.won[epoch] = who
	a.highest = max(a.highest, epoch)
}

// Several electors on a slow store that loses replies and applies requests late and
// twice. They are cut off, crash, resign, hand over and are deposed by operators. Old
// locks are pruned at any moment, and clocks drift within bounds. FENCEPOST_SEEDS=17-17
// runs seed 17 alone.
func TestRandomElections(t *testing.T) {
	first, last := uint64(1), uint64(8)
	if s := os.Getenv("FENCEPOST_SEEDS"); s != "" {
		if _, err := fmt.Sscanf(s, "%d-%d", &first, &last); err != nil {
			t.Fatal(err)
		}
	}
	terms, holes := 0, 0
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := randomElections(t, seed)
				terms += len(a.won)
				holes += a.holes
			})
		})
	}
	t.Logf("%d terms, %d wins in pruned holes", terms, holes)
	if first != last && (terms < 100 || holes == 0) {
		t.Errorf("the test has become too tame: %d terms, %d holes", terms, holes)
	}
}

func randomElections(t *testing.T, seed uint64) *audit {
	rng := rand.New(rand.NewPCG(seed, 0))
	contents := seed%2 == 0
	mem := memstore.New(&memstore.Options{Clock: clock.Go(), ContentVersions: contents})
	a := &audit{Store: mem, T: t, won: map[fence.Epoch]string{}, renewed: map[fence.Epoch]int{}}
	rates := faultstore.Rates{Fail: 0.03, LoseReply: 0.05, Echo: 0.03, Late: 0.05, LateOps: 200, MaxDelay: time.Second}
	if !contents {
		// Only where versions are hashes of the contents can the network bring a version
		// back, by repeating a swap whose answer was received.
		rates.Duplicate = 0.05
	}
	faulty := faultstore.New(a, &faultstore.Options{Seed: seed, Rates: rates, Clock: clock.Go()})

	pruner, err := leader.New(mem, "lock", &leader.Options{Clock: clock.Go(), Identity: fmt.Sprint("pruner/", seed), Prune: leader.PruneOptions{Keep: 1}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var believers atomic.Int32
	var wg sync.WaitGroup
	type process struct {
		st      *faultstore.Store
		term    atomic.Pointer[leader.Term]
		elector *leader.Elector
		stop    context.CancelFunc
	}
	var mu sync.Mutex
	procs := make([]*process, 4)
	start := func(i, life int) {
		name := fmt.Sprintf("p%d.%d/%d", i, life, seed)
		p := &process{st: faulty.Client(name)}
		c := &nodeClock{rate: 1 + (rng.Float64()-0.5)/10, origin: clock.Go().Now(), wall: time.Duration(rng.Int64N(1e15))}
		e, err := leader.New(p.st, "lock", &leader.Options{
			Identity: name, Clock: c, NoPrune: true,
			Hooks: leader.Hooks{Elected: func(w leader.Election) { a.elected(w.Epoch, name) }},
		})
		if err != nil {
			t.Error(err)
			return
		}
		var pctx context.Context
		pctx, p.stop = context.WithCancel(ctx)
		p.elector = e
		mu.Lock()
		procs[i] = p
		mu.Unlock()
		wg.Go(func() {
			for pctx.Err() == nil {
				err := e.Run(pctx, func(ctx context.Context, term *leader.Term) error {
					if n := believers.Add(1); n != 1 {
						t.Errorf("%d terms at once by their own clocks", n)
					}
					p.term.Store(term)
					<-ctx.Done()
					believers.Add(-1)
					_ = clock.Sleep(context.Background(), clock.Go(), time.Duration(term.Epoch()%7)*time.Second)
					return nil
				})
				if p.st.Crashed() {
					return
				}
				if err != nil && pctx.Err() == nil && !errors.Is(err, leader.ErrLost) && !errors.Is(err, store.ErrUnknown) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for i := range procs {
		start(i, 0)
	}
	for life := 1; life < 200; life++ {
		time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Second))))
		i := rng.IntN(len(procs))
		mu.Lock()
		p := procs[i]
		mu.Unlock()
		short, done := context.WithTimeout(ctx, 30*time.Second)
		switch term := p.term.Load(); rng.IntN(9) {
		case 0, 1:
			resume := p.st.Pause()
			time.AfterFunc(time.Duration(rng.Int64N(int64(time.Minute))), resume)
		case 2:
			p.st.Crash()
			start(i, life)
		case 3:
			p.stop()
			start(i, life)
		case 4, 5:
			if term != nil {
				_ = term.Resign(short)
			}
		case 6:
			_, _ = p.elector.StepDown(short, nil)
		default:
			_, _ = pruner.Prune(short)
		}
		done()
	}
	cancel()
	wg.Wait()
	return a
}
