package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

func (system) Now() Instant { return boot.now() }

var boot = newBootTime(sample, kernel)

// reading is one of Go's two clocks, which need no system call: elapsed time,
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
	// bootFresh is for how long of monotonic time the kernel's answer is believed.
	bootFresh = time.Millisecond
	// bootSlack is how far clocks that are read one after the other may differ.
	bootSlack = 100 * time.Microsecond
)

// bootTime is CLOCK_BOOTTIME for a fraction of its price, which is that of a
// system call. Boot time is monotonic time and all the time that the machine was
// suspended, so their distance stands still from one suspend to the next; and a
// suspend is seen without the kernel, since the time of day moves against
// monotonic time.
//
// What hides a suspend: somebody sets the time of day back by as much as was
// slept, to within bootSlack; or this thread has to wait for so long between its
// readings of the two clocks. Therefore the kernel is asked again after bootFresh
// of waking time at the latest. Who looks at a lease with a suspend hidden from
// it is as if it had looked up to bootFresh earlier, and been suspended between
// its look and the effect. No lease can prevent that.
type bootTime struct {
	sample func() reading
	kernel func() time.Duration

	// Written in this order and read in reverse, so that who sees the time of day
	// after a suspend sees a distance that counts it.
	distance atomic.Int64 // from mono to boot time: only rises, and never above the true one
	day      atomic.Int64 // wall − mono
	until    atomic.Int64 // the mono at which the kernel is to be asked again
}

// newBootTime asks at once, and so never first inside a synctest bubble.
func newBootTime(sample func() reading, kernel func() time.Duration) *bootTime {
	b := &bootTime{sample: sample, kernel: kernel}
	b.ask(sample())
	return b
}

func (b *bootTime) now() Instant {
	r := b.sample()
	until, day := b.until.Load(), b.day.Load()
	// guard:boot-fresh. The distance that was asked for last is right until a suspend; one
	// that nobody has seen yet must not stay unseen for longer than this.
	//
	//mutant:replace int64(r.mono) < until => until > 0
	fresh := int64(r.mono) < until
	// guard:boot-day. A suspend moves the time of day and not the monotonic clock: where
	// the two have come apart, the kernel is asked at once.
	//
	//mutant:replace near(r.wall-r.mono, time.Duration(day)) => day != 0
	unmoved := near(r.wall-r.mono, time.Duration(day))
	if fresh && unmoved {
		return Instant(int64(r.mono) + b.distance.Load())
	}
	return b.ask(r)
}

// ask asks the kernel between two readings. Its answer less the mono after it is
// at most the distance, and short of it by what lies between them.
func (b *bootTime) ask(before reading) Instant {
	answer := b.kernel()
	after := b.sample()
	// guard:boot-rising. Somebody else may have asked meanwhile, and its answer may
	// lie closer to its reading. Who has been told a later time than this distance
	// gives must not see it go back.
	//
	//mutant:replace distance = max(distance, old); b.distance => b.distance
	distance := int64(answer - after.mono)
	for {
		old := b.distance.Load()
		if distance = max(distance, old); b.distance.CompareAndSwap(old, distance) {
			break
		}
	}
	// guard:boot-between. A suspend or a long wait after the answer is not in it, and
	// the time of day after it must not vouch for it.
	//
	//mutant:replace near(after.mono, before.mono) && near(after.wall, before.wall) => true
	if near(after.mono, before.mono) && near(after.wall, before.wall) {
		b.day.Store(int64(after.wall - after.mono))
		b.until.Store(int64(after.mono + bootFresh))
	}
	return Instant(int64(after.mono) + distance)
}

func near(a, b time.Duration) bool { return (a - b).Abs() <= bootSlack }
