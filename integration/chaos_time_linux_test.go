//go:build integration

package integration

import (
	"os/exec"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timeNamespaces tells whether a process can be given monotonic and boot-time
// clocks of its own, which takes rights that not everybody has.
var timeNamespaces = sync.OnceValue(func() bool {
	argv := append(shiftBoot(time.Second), "true")
	return exec.Command(argv[0], argv[1:]...).Run() == nil
})

// shiftBoot is a command that becomes the one behind it, on a machine that seems to
// have been up for longer.
func shiftBoot(by time.Duration) []string {
	if by == 0 {
		return nil
	}
	s := strconv.Itoa(int(by / time.Second))
	return []string{"unshare", "--time", "--monotonic", s, "--boottime", s}
}

// elapsed is the machine's monotonic clock, the same for all processes, for one
// that was shifted by so much.
func elapsed(shift time.Duration) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has it
	}
	return ts.Nano() - int64(shift)
}
