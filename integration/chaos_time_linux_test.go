//go:build integration

package integration

import (
	"os/exec"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timeNamespaces reports whether a process can get its own monotonic and boot-time
// clocks. That needs rights that not every user has.
var timeNamespaces = sync.OnceValue(func() bool {
	argv := append(shiftBoot(time.Second), "true")
	return exec.Command(argv[0], argv[1:]...).Run() == nil
})

// shiftBoot returns a command prefix. The command after it runs on a machine that seems
// to have been up for longer.
func shiftBoot(by time.Duration) []string {
	if by == 0 {
		return nil
	}
	s := strconv.Itoa(int(by / time.Second))
	return []string{"unshare", "--time", "--monotonic", s, "--boottime", s}
}

// elapsed returns the machine's monotonic clock, the same for all processes. shift is by
// how much this process's clock was shifted.
func elapsed(shift time.Duration) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // Linux has this clock
	}
	return ts.Nano() - int64(shift)
}
