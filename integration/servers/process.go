//go:build unix

package servers

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a running child in a process group of its own.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended and been waited for
	err  error         // how it ended; read after done
}

// spawn starts cmd. A goroutine waits for it, and ends when it ends.
//
// The kernel sends a child its parent-death signal when the *thread* that
// started it ends, not the process (golang/go#27505). So the thread is kept for
// as long as the child runs; it then dies with the test binary and not before.
func spawn(cmd *exec.Cmd) (*process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	tie(cmd.SysProcAttr)
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

// Spawn starts a child of a test, which dies with the test binary however that
// ends; its SysProcAttr is kept but for what that takes. The channel is closed when
// the child has ended and been waited for.
func Spawn(cmd *exec.Cmd) (<-chan struct{}, error) {
	p, err := spawn(cmd)
	if err != nil {
		return nil, err
	}
	return p.done, nil
}

// signal sends sig to the whole group, unless the process has ended: its number
// may then belong to somebody else.
func (p *process) signal(sig unix.Signal) {
	select {
	case <-p.done:
	default:
		// ESRCH means that it has just ended; there is no other error to expect
		// about a child of one's own.
		_ = unix.Kill(-p.pid, sig)
	}
}
