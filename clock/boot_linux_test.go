package clock_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/clock"
)

// The system's clock is the kernel's boot time, which counts suspends, and not Go's monotonic time.
func TestT27_SystemIsTheBootTime(t *testing.T) {
	kernel := func() clock.Instant {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			t.Fatal(err)
		}
		return clock.Instant(ts.Nano())
	}
	for range 1000 {
		before := kernel()
		now := clock.System().Now()
		if after := kernel(); now < before || now > after {
			t.Fatalf("it says %d between the kernel's %d and %d", now, before, after)
		}
	}
}

func BenchmarkNow(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		clock.System().Now()
	}
}
