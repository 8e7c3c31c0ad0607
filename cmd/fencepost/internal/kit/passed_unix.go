//go:build unix

package kit

import "syscall"

// Passed are the signals that exec and lock pass on to their command.
var Passed = []syscall.Signal{
	syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGWINCH,
}

// nonblocking opens a pipe without waiting for its other end.
const nonblocking = syscall.O_NONBLOCK
