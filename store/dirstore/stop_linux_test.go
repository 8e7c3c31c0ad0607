package dirstore

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// stopHere stops this process, and returns when it is continued. The signal goes
// to the calling thread: sent to the process, another thread may take it, and
// this one goes on for a while.
func stopHere() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}
