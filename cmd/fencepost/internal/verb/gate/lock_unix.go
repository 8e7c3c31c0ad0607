//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package gate

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// lockFile makes this process, and those that inherit f, the only ones to hold it. It reports false if
// another one holds it.
func lockFile(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// statusOf is the exit status of a command as shells show it.
func statusOf(e *exec.ExitError) int {
	if w, ok := e.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return kit.ExitSignal + int(w.Signal())
	}
	return e.ExitCode()
}
