//go:build !unix

package kit

import "syscall"

// Passed are the signals that exec and lock pass on to their command.
var Passed = []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

const nonblocking = 0
