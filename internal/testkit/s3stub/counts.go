package s3stub

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// Call is the key of [Counts].
type Call struct {
	Op    Op
	Class string
}

// Counts are how many requests of each kind came in, including those that got a fault.
type Counts map[Call]int

// Total is the number of all requests.
func (c Counts) Total() int {
	n := 0
	for _, v := range c {
		n += v
	}
	return n
}

// Of is the number of requests of one operation.
func (c Counts) Of(op Op) int {
	n := 0
	for call, v := range c {
		if call.Op == op {
			n += v
		}
	}
	return n
}

// Timing is one request as the server saw it.
type Timing struct {
	Op         Op
	Key, Class string
	// Size of the request's body in bytes.
	Size int
	// Arrived is when the header had been read. Latency is what was drawn for the request.
	// Answered is when that time had passed, plus the timer's inaccuracy. A benchmark
	// computes from them what an ideal client would reach.
	Arrived, Answered clock.Instant
	Latency           time.Duration
	Status            int
	Dropped           bool
}

type tally struct {
	mu      sync.Mutex
	n       int
	ops     map[Op]int
	counts  Counts
	timings []Timing
}

func (t *tally) add(req *Request) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
	t.ops[req.Op]++
	req.OpN = t.ops[req.Op]
	t.counts[Call{req.Op, req.Class}]++
	return t.n
}

func (t *tally) record(timing Timing) {
	t.mu.Lock()
	t.timings = append(t.timings, timing)
	t.mu.Unlock()
}

func (t *tally) reset() {
	t.mu.Lock()
	t.n, t.ops, t.counts, t.timings = 0, map[Op]int{}, Counts{}, nil
	t.mu.Unlock()
}

// Counts returns the requests since the start or the last Reset.
func (s *Server) Counts() Counts {
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	return maps.Clone(s.tally.counts)
}

// Timings returns the times of the requests that ended since the start or the last Reset,
// in the order in which they ended. It needs Options.Record.
func (s *Server) Timings() []Timing {
	s.tally.mu.Lock()
	defer s.tally.mu.Unlock()
	return slices.Clone(s.tally.timings)
}

// Reset clears counts and timings; objects stay.
func (s *Server) Reset() { s.tally.reset() }
