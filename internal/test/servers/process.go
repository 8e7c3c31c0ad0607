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
	done chan struct{} // closed after it has ended and been waited for
	err  error         // how it ended; read it after done
}

// spawn starts cmd. A goroutine waits for it, and ends when it ends.
//
// The kernel sends a child its parent-death signal when the *thread* that started it
// ends, not the process (golang/go#27505). So spawn keeps that thread for as long as the
// child runs.
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

// Spawn starts a child process that dies with the test binary, in whatever way that ends.
// It changes only the necessary fields of SysProcAttr. The channel is closed after the
// child has ended and been waited for.
func Spawn(cmd *exec.Cmd) (<-chan struct{}, error) {
	p, err := spawn(cmd)
	if err != nil {
		return nil, err
	}
	return p.done, nil
}

// signal sends sig to the whole group, unless the process has ended. After that its
// number may belong to another process.
func (p *process) signal(sig unix.Signal) {
	select {
	case <-p.done:
	default:
		// ESRCH means that it has just ended. No other error is possible for a child
		// process.
		_ = unix.Kill(-p.pid, sig)
	}
}
