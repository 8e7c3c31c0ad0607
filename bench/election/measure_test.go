package election

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	results "github.com/fencepost/fencepost/bench/result"
	"github.com/fencepost/fencepost/store/faultstore"
)

// Number of rounds of each measure. Each partition is long enough for another node to
// take over.
const (
	crashes    = 300
	leavings   = 300
	partitions = 1000
	minutes    = 60
)

// result holds one contender's results. Durations are in seconds.
type result struct {
	Crash    *spread  `json:"crash_failover_validities"`
	Graceful *spread  `json:"release_to_next_leader_seconds"`
	HandOver *spread  `json:"told_to_end_gap_seconds"`
	Resigns  *spread  `json:"resigns_gap_seconds,omitempty"`
	Returns  *spread  `json:"work_returns_gap_seconds,omitempty"`
	Cut      *cut     `json:"cut_off"`
	Requests requests `json:"requests_a_minute"`
}

type spread struct {
	N   int     `json:"n"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func spreadOf(d []time.Duration, unit time.Duration) *spread {
	in := func(q float64) float64 { return float64(results.Quantile(d, q)) / float64(unit) }
	return &spread{N: len(d), P50: in(0.5), P99: in(0.99), Max: in(1)}
}

type cut struct {
	Partitions int `json:"partitions"`
	// Two is how often two nodes led at once by their own belief. Median and Longest say
	// for how long.
	Two     int     `json:"two_leaders"`
	Median  float64 `json:"median_seconds"`
	Longest float64 `json:"longest_seconds"`
}

type requests struct {
	LeaderWrites float64  `json:"leader_writes"`
	LeaderReads  float64  `json:"leader_reads"`
	Follower     float64  `json:"follower"`
	Observer     *float64 `json:"observer,omitempty"`
}

func random(seed uint64) func(least, most time.Duration) time.Duration {
	rng := rand.New(rand.NewPCG(seed, seed))
	return func(least, most time.Duration) time.Duration {
		return least + time.Duration(rng.Int64N(int64(most-least)))
	}
}

// crash measures the time from a leader's crash, at any moment, to the next term. Two
// followers wait, one of them for at most half a minute.
func crash(t *testing.T, c contender) (s *spread) {
	inWorld(t, c, func(w *world) {
		after := random(1)
		leader := w.first(2)
		gaps := make([]time.Duration, 0, crashes)
		for range crashes {
			w.candidate()
			time.Sleep(after(0, 30*time.Second))
			leader.crash()
			crashed := time.Now()
			leader = <-w.terms
			gaps = append(gaps, leader.began.Sub(crashed))
		}
		s = spreadOf(gaps, validity)
	})
	return s
}

// graceful measures the time from the store applying a leader's release to the next term,
// of the only follower. A node that has left is replaced, as in a rolling restart, but
// only after the next term began: a node that starts finds a free lock at once.
func graceful(t *testing.T, c contender) (s *spread) {
	inWorld(t, c, func(w *world) {
		after := random(2)
		leader := w.first(2)
		var gaps []time.Duration
		for range leavings {
			time.Sleep(after(20*time.Second, time.Minute))
			leader.leaving.Store(true)
			leader.leave()
			leader = <-w.terms
			gaps = append(gaps, leader.began.Sub(<-w.releases))
			w.candidate()
		}
		s = spreadOf(gaps, time.Second)
	})
	return s
}

// How a leader's work comes to its end.
var (
	toldToEnd = func(t *term) { t.stop() }
	resigns   = func(t *term) { t.leave() }
	returns   = func(t *term) { close(t.done) }
)

// handOver measures the time in which nobody leads when the work of the leader of three nodes
// ends, as in a rolling deploy: from the end of its work to the next term.
func handOver(t *testing.T, c contender, how func(*term)) (s *spread) {
	inWorld(t, c, func(w *world) {
		after := random(4)
		leader := w.first(3)
		var gaps []time.Duration
		for range leavings {
			time.Sleep(after(20*time.Second, time.Minute))
			leader.leaving.Store(true)
			how(leader)
			next := <-w.terms
			gaps = append(gaps, next.began.Sub(<-leader.ended))
			leader = next
			w.candidate()
		}
		s = spreadOf(gaps, time.Second)
	})
	return s
}

// partition cuts the leader off from the store: its requests hang. It comes back after
// another node can have taken over.
func partition(t *testing.T, c contender) (r *cut) {
	inWorld(t, c, func(w *world) {
		after := random(3)
		leader := w.first(3)
		for range partitions {
			time.Sleep(after(0, 20*time.Second))
			heal := leader.st.Pause()
			// A node that comes back at once may lead again before any other.
			time.AfterFunc(after(20*time.Second, time.Minute), heal)
			leader = <-w.terms
		}
		time.Sleep(time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		r = &cut{Partitions: partitions, Two: len(w.overlaps)}
		if len(w.overlaps) > 0 {
			r.Median, r.Longest = results.Quantile(w.overlaps, 0.5).Seconds(), results.Quantile(w.overlaps, 1).Seconds()
		}
	})
	return r
}

// steady counts requests while nothing happens.
func steady(t *testing.T, c contender) (r requests) {
	inWorld(t, c, func(w *world) {
		w.candidate()
		leader := <-w.terms
		follower := w.candidate()
		if c.observe != nil {
			w.running.Go(func() {
				if err := c.observe(w.ctx, w.st.Client("observer")); err != nil {
					w.Error(err)
				}
			})
		}
		var mu sync.Mutex
		counts := map[string]int{}
		time.Sleep(time.Minute)
		w.st.SetBefore(func(_ context.Context, op faultstore.Op) {
			mu.Lock()
			defer mu.Unlock()
			if op.Client == leader.name && op.Kind == faultstore.Put {
				counts["writes"]++
				return
			}
			counts[op.Client]++
		})
		time.Sleep(minutes * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		rate := func(what string) float64 { return float64(counts[what]) / minutes }
		r = requests{LeaderWrites: rate("writes"), LeaderReads: rate(leader.name), Follower: rate(follower.name)}
		if c.observe != nil {
			o := rate("observer")
			r.Observer = &o
		}
		if len(w.terms) > 0 {
			w.Error("the leader has changed")
		}
	})
	return r
}
