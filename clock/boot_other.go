//go:build !linux

package clock

import (
	"sync"
	"time"
)

var (
	mu    sync.Mutex
	start = time.Now()
	last  = start
	total time.Duration
)

// Now adds up steps, each the greater of what the monotonic and the wall clock
// advanced: the monotonic clock may stop in suspend, the wall clock may be set
// back. A lease then looks older than it is, at worst, never younger.
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
