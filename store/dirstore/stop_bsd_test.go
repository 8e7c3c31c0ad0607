//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// stopHere stops this process, and returns when it is continued.
func stopHere() error {
	err := unix.Kill(os.Getpid(), unix.SIGSTOP)
	// Another thread may take the signal, and this one go on for a moment.
	time.Sleep(100 * time.Millisecond)
	return err
}
