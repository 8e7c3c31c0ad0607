package main

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// traffic is what clients do: so many each wait for their acknowledgement before they append
// again, after thinking for 0.2 ms on average. Or records come at random, so many a second.
type traffic struct {
	clients, rate int
	size          int // of a record, in bytes
}

func (l traffic) String() string {
	if l.clients > 0 {
		return fmt.Sprintf("%s waiting clients, %s B", result.Number(float64(l.clients)), result.Number(float64(l.size)))
	}
	return fmt.Sprintf("%s records a second, %s B", result.Number(float64(l.rate)), result.Number(float64(l.size)))
}

// score is what a load saw.
type score struct {
	acks, p50, p99, puts, gets float64 // acknowledgements a second, milliseconds, requests a second
}

func (s score) String() string {
	return fmt.Sprintf("%s acks/s, p50 %.1f ms, p99 %.1f ms, %.1f PUT/s", result.Number(s.acks), s.p50, s.p99, s.puts)
}

// thinking is how long a client takes to append again, on average.
const thinking = 200 * time.Microsecond

// run loads an appender for a while, after a warming up.
func (l traffic) run(a appender, st *far, warm, long time.Duration) score {
	var mu sync.Mutex
	var took []time.Duration
	begin := time.Now().Add(warm)
	end := begin.Add(long)
	ack := func(start time.Time, then func()) func() {
		return func() {
			if now := time.Now(); !now.Before(begin) && now.Before(end) {
				mu.Lock()
				took = append(took, now.Sub(start))
				mu.Unlock()
			}
			then()
		}
	}
	record := payload(l.size)
	var all sync.WaitGroup
	for c := range l.clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			for done := make(chan struct{}); time.Now().Before(end); <-done {
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(thinking)))
				a.append(record, ack(time.Now(), func() { done <- struct{}{} }))
			}
		})
	}
	if l.rate > 0 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, 1))
			for time.Now().Before(end) {
				time.Sleep(time.Duration(rng.ExpFloat64() * float64(time.Second) / float64(l.rate)))
				a.append(record, ack(time.Now(), func() {}))
			}
		})
	}
	time.Sleep(time.Until(begin))
	puts, gets := st.counts()
	time.Sleep(time.Until(end))
	puts2, gets2 := st.counts()
	all.Wait()
	a.close()
	per := func(n int) float64 { return float64(n) / long.Seconds() }
	ms := func(q float64) float64 { return float64(result.Quantile(took, q)) / 1e6 }
	return score{acks: per(len(took)), p50: ms(0.5), p99: ms(0.99), puts: per(puts2 - puts), gets: per(gets2 - gets)}
}

// arena runs the arms of a comparison, each in virtual time.
type arena struct {
	t      *testing.T
	format manifest.Format
	spread spread
	long   time.Duration
}

func (a arena) run(l traffic, make func(*testing.T, *far) appender) (s score) {
	a.t.Helper()
	synctest.Test(a.t, func(t *testing.T) {
		st := newFar(a.spread)
		s = l.run(make(t, st), st, a.long/5, a.long)
	})
	return s
}

func (a arena) fenced(l traffic, opts writer.Options) score {
	return a.run(l, func(t *testing.T, st *far) appender { return newFenced(t, a.format, st, opts) })
}

// serial returns the score of the serial group commit with the best linger.
func (a arena) serial(l traffic) (best score) {
	for _, part := range []int{0, 64, 32, 16} { // of the latency
		var linger time.Duration
		if part > 0 {
			linger = a.spread.p50 / time.Duration(part)
		}
		s := a.run(l, func(t *testing.T, st *far) appender { return newGroup(t, st, linger) })
		if best == (score{}) || l.clients > 0 && s.acks > best.acks || l.clients == 0 && s.p50 < best.p50 {
			best = s
		}
	}
	return best
}

var spreads = []spread{
	{name: "S3's tail", p50: 28 * time.Millisecond, p99: 120 * time.Millisecond},
	{name: "28 ms", p50: 28 * time.Millisecond, p99: 28 * time.Millisecond},
	{name: "2 ms", p50: 2 * time.Millisecond, p99: 2 * time.Millisecond},
	{name: "100 ms", p50: 100 * time.Millisecond, p99: 100 * time.Millisecond},
	{name: "a light tail", p50: 28 * time.Millisecond, p99: 45 * time.Millisecond},
	{name: "S3's tail, one in 1,000 takes 100 times as long", p50: 28 * time.Millisecond, p99: 120 * time.Millisecond, rare: 0.001},
}

func TestPacing(t *testing.T) {
	f, err := manifest.Init(t.Context(), memstore.New(nil), quickly) // outside the bubble, because its probe needs real time
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spreads {
		t.Run(s.name, func(t *testing.T) {
			for _, l := range []traffic{{clients: 1}, {clients: 16}, {clients: 64}, {clients: 256}, {clients: 1000}, {rate: 50}, {rate: 400}, {rate: 5000}} {
				for _, size := range []int{100, 4 << 10} {
					l.size = size
					if size > 100 && l.clients != 64 && l.rate != 400 {
						continue
					}
					t.Run(l.String(), func(t *testing.T) {
						long := time.Minute
						if l.rate == 50 || l.rate == 400 || l.clients == 1 || l.clients == 16 {
							long *= 10
						}
						a := arena{t, f, s, long}
						base := a.serial(l)
						fmt.Println(s.name, l, "serial", base)
						for _, h := range []float64{0, .96} {
							o := a.fenced(l, writer.Options{Hedge: h})
							fmt.Printf("    hedge %v %v  %.3f %.3f %.3f %.2f\n", h, o, o.acks/base.acks, o.p50/base.p50, o.p99/base.p99, o.puts/base.puts)
						}
					})
				}
			}
		})
	}
}
