package test

import (
	"os"
	"os/exec"
	"runtime"
	"testing"
)

// Allocated returns how many bytes this process allocates while f runs, also those that are garbage after it. What other
// goroutines allocate counts too. It stops the world twice: runtime/metrics would be quicker, and counts small objects late.
func Allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// Affords runs f, which handles n bytes that somebody else has made. The test fails if that allocates more than factor times n,
// and a constant.
func Affords(t testing.TB, n int, factor, constant int64, f func()) {
	t.Helper()
	if took, most := Allocated(f), factor*int64(n)+constant; took > most {
		t.Errorf("%d bytes took %d bytes of memory; at most %d*%d + %d = %d are right", n, took, factor, n, constant, most)
	}
}

// InChild runs a test once more, in a process that may have that many bytes of addresses. A decoder that allocates what
// a length claims ends that process and not this one. It returns true in there.
func InChild(t *testing.T, bytes uint64) bool {
	t.Helper()
	if os.Getenv("FENCEPOST_CHILD") == t.Name() {
		limitMemory(t, bytes)
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "FENCEPOST_CHILD="+t.Name(), "GOMAXPROCS=2")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %.3000s", err, out)
	}
	return false
}
