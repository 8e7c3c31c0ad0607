package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

func (system) Now() Instant { return boot.now() }

var boot = newBootTime(sample, kernel)

// reading is one of both of Go's clocks, which need no system call: elapsed time,
// which stops in suspend, and the time of day, which does not.
type reading struct{ mono, wall time.Duration }

var bootOrigin = time.Now()

func sample() reading {
	now := time.Now()
	return reading{mono: now.Sub(bootOrigin), wall: time.Duration(now.UnixNano())}
}

func kernel() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Linux has had this clock since 2.6.39.
		panic("clock: CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}

const (
	// bootFresh is how long, in monotonic time, an answer of the kernel is used.
	bootFresh = time.Millisecond
	// bootSlack is how far two clocks that are read one after the other may differ.
	bootSlack = 100 * time.Microsecond
)

// bootTime is CLOCK_BOOTTIME without a system call for most readings.
//
// Boot time is monotonic time plus all the time that the machine was suspended. So
// their distance changes only in a suspend. A suspend shows without the kernel,
// because the time of day then moves against monotonic time.
//
// A suspend is hidden if the time of day is set back by as much as was slept, to
// within bootSlack; or if this thread waits that long between its two readings.
// Therefore the kernel is asked again after bootFresh of waking time. A hidden
// suspend acts like a check made up to bootFresh earlier, followed by sleep. No
// lease prevents that.
type bootTime struct {
	sample func() reading
	kernel func() time.Duration

	// Written in this order and read in reverse. So a reader that sees the time of
	// day after a suspend also sees a distance that counts it.
	distance atomic.Int64 // from mono to boot time: only rises, and never above the true one
	day      atomic.Int64 // wall − mono
	until    atomic.Int64 // the mono at which the kernel must be asked again
}

// newBootTime asks the kernel at once, so the first time is never inside a synctest
// bubble.
func newBootTime(sample func() reading, kernel func() time.Duration) *bootTime {
	b := &bootTime{sample: sample, kernel: kernel}
	b.ask(sample())
	return b
}

func (b *bootTime) now() Instant {
	r := b.sample()
	until, day := b.until.Load(), b.day.Load()
	// guard:boot-fresh. The clock reuses the kernel's answer for at most 1 ms of waking time.
	//
	//mutant:replace int64(r.mono) < until => until > 0
	fresh := int64(r.mono) < until
	// guard:boot-day. The clock asks the kernel at once if the time of day has moved against monotonic
	// time, because then the machine has slept.
	//
	//mutant:replace near(r.wall-r.mono, time.Duration(day)) => day != 0
	unmoved := near(r.wall-r.mono, time.Duration(day))
	if fresh && unmoved {
		return Instant(int64(r.mono) + b.distance.Load())
	}
	return b.ask(r)
}

// ask asks the kernel between two readings. Its answer minus the mono read after it
// is at most the true distance, and less by the time between the two.
func (b *bootTime) ask(before reading) Instant {
	answer := b.kernel()
	after := b.sample()
	// guard:boot-rising. The clock never replaces its distance from monotonic time to boot time by a
	// smaller one.
	//
	//mutant:replace distance = max(distance, old); b.distance => b.distance
	distance := int64(answer - after.mono)
	for {
		old := b.distance.Load()
		if distance = max(distance, old); b.distance.CompareAndSwap(old, distance) {
			break
		}
	}
	// guard:boot-between. An answer of the kernel is reused only if time of day and monotonic time
	// moved by at most 100 µs during the question.
	//
	//mutant:replace near(after.mono, before.mono) && near(after.wall, before.wall) => true
	if near(after.mono, before.mono) && near(after.wall, before.wall) {
		b.day.Store(int64(after.wall - after.mono))
		b.until.Store(int64(after.mono + bootFresh))
	}
	return Instant(int64(after.mono) + distance)
}

func near(a, b time.Duration) bool { return (a - b).Abs() <= bootSlack }
