package test

import (
	"syscall"
	"testing"
)

// limitMemory limits the addresses of this process. The race detector needs more than any limit.
func limitMemory(t *testing.T, bytes uint64) {
	t.Helper()
	if Race {
		return
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: bytes, Max: bytes}); err != nil {
		t.Fatal(err)
	}
}
