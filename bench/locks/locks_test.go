package locks

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

var (
	results = result.DirFlag()
	page    = result.New("Locks with names", "locks")
)

func TestMain(m *testing.M) {
	flag.Parse()
	page.Text = "In virtual time, at 28 ms a request. A contender acquires one name over and over, and holds it for 10 ms. A hand-over is from the moment before a release is sent to the next acquisition."
	page.Made = "go test -C bench ./locks -results results"
	code := m.Run()
	if code == 0 && *results != "" {
		if err := page.Write(*results); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

// size is full for the page, and small to see only that the measure works.
func size(full, small int) int {
	if *results != "" {
		return full
	}
	return small
}

func add(t *testing.T, rows ...result.Row) {
	t.Helper()
	for _, r := range rows {
		t.Logf("%-60s %10.3f  %s", r.Name, r.Value, r.Note)
	}
	page.Add(t.Name(), rows...)
}

type world struct {
	*testing.T
	faulty *faultstore.Store
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		test(&world{t, faultstore.New(mem, &faultstore.Options{Clock: clock.Go(), Hook: func(faultstore.Op) faultstore.Fault {
			return faultstore.Fault{Delay: 14 * time.Millisecond, ReplyDelay: 14 * time.Millisecond}
		}})})
	})
}

func (w *world) locker(name string) *lock.Locker {
	l, err := lock.New(w.faulty.Client(name), "locks", &lock.Options{Identity: name, Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

func (w *world) acquire(l *lock.Locker, name string) *lock.Lock {
	k, err := l.Acquire(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	return k
}

func (w *world) release(k *lock.Lock) {
	if err := k.Release(w.Context()); err != nil {
		w.Error(err)
	}
}

// Lock and unlock, by processes that know nothing.
func TestUncontended(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, c := range []struct {
			what string
			same bool
			requests,
			ms float64
		}{{"a new name", false, 5, 145}, {"a name that exists", true, 3, 90}} {
			var took []time.Duration
			requests := 0.
			for i := range 50 {
				name := "name"
				if !c.same {
					name = fmt.Sprint(i)
				}
				l := w.locker(fmt.Sprint(c.what, i))
				w.faulty.ResetCounts()
				begin := time.Now()
				w.release(w.acquire(l, name))
				took = append(took, time.Since(begin))
				requests = max(requests, float64(w.faulty.Counts().Of("", "")))
			}
			add(t, result.Row{Name: "lock and unlock, " + c.what + ": requests", Value: requests, Goal: c.requests, Ratio: true},
				result.Row{Name: "lock and unlock, " + c.what + ": ms, p50", Value: float64(result.Quantile(took, .5)) / 1e6, Goal: c.ms, Ratio: true})
		}
	})
}

// Many want one name.
func TestContended(t *testing.T) {
	n, rounds := size(100, 20), size(30, 10)
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		var freed time.Time
		var handovers []time.Duration
		turns, most, held := 0, 0, false
		last, polls := make([]int, n), map[string]int{}
		w.faulty.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
			mu.Lock()
			defer mu.Unlock()
			if op.Kind == faultstore.Get && held { // otherwise it is part of a hand-over
				polls[op.Client]++
			}
		})
		done, begin := make(chan struct{}), time.Now()
		var wg sync.WaitGroup
		for i := range n {
			l := w.locker(fmt.Sprint(i))
			wg.Go(func() {
				time.Sleep(rand.N(time.Second))
				for {
					select {
					case <-done:
						return
					default:
					}
					mu.Lock()
					last[i] = turns
					mu.Unlock()
					k := w.acquire(l, "name")
					mu.Lock()
					if !freed.IsZero() {
						handovers = append(handovers, time.Since(freed))
					}
					if turns++; last[i] > n { // by then they know how many they are
						most = max(most, turns-last[i])
					}
					if held = true; turns == n*rounds {
						close(done)
					}
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					freed, held = time.Now(), false
					mu.Unlock()
					w.release(k)
				}
			})
		}
		<-done
		minutes, reads := time.Since(begin).Minutes(), 0
		mu.Lock()
		for _, p := range polls {
			reads = max(reads, p)
		}
		mu.Unlock()
		wg.Wait()
		what := fmt.Sprintf("%d contenders: ", n)
		add(t, result.Row{Name: what + "hand-over, in requests, p50", Value: float64(result.Quantile(handovers, .5)) / float64(28*time.Millisecond), Goal: 4, Ratio: true,
			Note: fmt.Sprintf("p99 %s", result.Number(float64(result.Quantile(handovers, .99))/float64(28*time.Millisecond)))},
			result.Row{Name: what + "longest wait for a turn, in fair shares", Value: float64(most) / float64(n), Goal: 3, Ratio: true},
			result.Row{Name: what + "GETs a minute of the busiest one, beside hand-overs", Value: float64(reads) / minutes, Goal: 150, Ratio: true})
	})
}

// One waits for a name that is held for an hour.
func TestWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		k := w.acquire(w.locker("holder"), "name")
		got := make(chan *lock.Lock)
		go func() { got <- w.acquire(w.locker("waiter"), "name") }()
		most := 0
		for range 60 {
			before := w.faulty.Counts().Of(faultstore.Get, "")
			time.Sleep(time.Minute)
			most = max(most, w.faulty.Counts().Of(faultstore.Get, "")-before)
		}
		w.release(k)
		begin := time.Now()
		w.release(<-got)
		add(t, result.Row{Name: "one that waits for an hour: GETs in the busiest minute", Value: float64(most), Goal: 150, Ratio: true,
			Note: fmt.Sprintf("then it had the name %v after the release", time.Since(begin).Round(time.Millisecond))})
	})
}

// One process holds many names.
func TestMany(t *testing.T) {
	names := size(10_000, 500)
	inWorld(t, func(w *world) {
		l := w.locker("holder")
		var wg sync.WaitGroup
		for n := range 50 {
			wg.Go(func() {
				for i := n; i < names; i += 50 {
					w.acquire(l, fmt.Sprint(i))
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Minute)
		w.faulty.ResetCounts()
		time.Sleep(time.Hour)
		add(t, result.Row{Name: fmt.Sprintf("%s names held by one process: PUTs a minute", result.Number(float64(names))), Value: float64(w.faulty.Counts().Of("", "")) / 60, Goal: 10, Ratio: true})
	})
}
