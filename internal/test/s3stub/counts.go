package s3stub

import (
	"maps"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/clock"
)

// Counts are how many requests of each operation came in, including those that got a fault.
type Counts map[Op]int

// Total is the number of all requests.
func (c Counts) Total() int {
	n := 0
	for _, v := range c {
		n += v
	}
	return n
}

// Of is the number of requests of one operation.
func (c Counts) Of(op Op) int { return c[op] }

// Timing is one request as the server saw it.
type Timing struct {
	Op  Op
	Key string
	// Arrived is when the header had been read. Answered is when the request's latency had
	// passed, plus the timer's inaccuracy. A benchmark computes from them what an ideal
	// client would reach.
	Arrived, Answered clock.Instant
}

type tally struct {
	mu      sync.Mutex
	counts  Counts
	timings []Timing
}

func (t *tally) add(op Op) {
	t.mu.Lock()
	t.counts[op]++
	t.mu.Unlock()
}

func (t *tally) record(timing Timing) {
	t.mu.Lock()
	t.timings = append(t.timings, timing)
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
func (s *Server) Reset() {
	s.tally.mu.Lock()
	s.tally.counts, s.tally.timings = Counts{}, nil
	s.tally.mu.Unlock()
}
