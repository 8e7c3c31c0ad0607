package leader

import (
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// load measures how busy the leader is.
type load struct {
	mu    sync.Mutex
	works int
	since clock.Instant // when works became positive, or share was last taken
	busy  time.Duration // before since
	from  clock.Instant // when share was last taken
	queue int64
}

func (l *load) begin(now clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.works == 0 {
		l.since = now
	}
	l.works++
}

func (l *load) end(now clock.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.works == 0 {
		return
	}
	if l.works--; l.works == 0 {
		l.busy += now.Sub(l.since)
	}
}

// share is that of the time since it was last asked for.
func (l *load) share(now clock.Instant) (busy float64, queue int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.works > 0 {
		l.busy += now.Sub(l.since)
		l.since = now
	}
	if whole := now.Sub(l.from); whole > 0 {
		busy = min(float64(l.busy)/float64(whole), 1)
	}
	l.busy, l.from = 0, now
	return busy, l.queue
}

// Begin and End enclose a piece of work, for the share of time in work that
// Hooks.Heartbeat reports. Several may overlap. End is [Term.Progress] too.
func (t *Term) Begin() { t.load.begin(t.clock.Now()) }

// End ends what Begin began.
func (t *Term) End() {
	now := t.clock.Now()
	t.progress.Store(int64(now))
	t.load.end(now)
}

// SetQueue notes how much work is waiting, for Hooks.Heartbeat.
func (t *Term) SetQueue(n int64) {
	t.load.mu.Lock()
	defer t.load.mu.Unlock()
	t.load.queue = n
}
