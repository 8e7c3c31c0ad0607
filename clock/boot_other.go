//go:build !linux

package clock

import (
	"sync"
	"time"
)

var (
	mu    sync.Mutex
	last  = time.Now()
	total time.Duration
)

// Now adds up steps. Each step is the larger of the advances of the monotonic clock,
// which may stop in suspend, and of the time of day, which may be set back. So a
// lease may look older than it is, and never younger.
func (system) Now() Instant {
	mu.Lock()
	defer mu.Unlock()
	now := time.Now()
	mono := now.Sub(last)
	wall := now.Round(0).Sub(last.Round(0))
	last = now
	total += max(mono, wall, 0)
	return Instant(total)
}
