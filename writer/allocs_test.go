package writer_test

import (
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/writer"
)

// maxAllocs is how many allocations an append may make, with those of its request to a store in memory. 27 were
// measured on 2026-11-26, and 29 with the race detector.
const maxAllocs = 32

// A client that appends one record after the other makes few allocations for each: a new one on this path would
// be paid by each append.
func TestAppendAllocates(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	w, err := writer.Open(t.Context(), l.Mem, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(w)
	records := [][]byte{make([]byte, 100)}
	n := testing.AllocsPerRun(500, func() {
		if _, err := w.Append(t.Context(), records); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%.1f allocations", n)
	if n > maxAllocs {
		t.Errorf("an append makes %.1f allocations, at most %d are allowed", n, maxAllocs)
	}
}
