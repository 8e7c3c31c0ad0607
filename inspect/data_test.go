package inspect_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

// TestCheckData: whatever bit of an object of the chain flips, and wherever it is cut, that shows.
func TestCheckData(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	l.Lead(2)
	limits, n := logtest.Format().Limits, 0
	for _, key := range l.Keys(inspect.Data.Prefix()) {
		body := l.Body(key)
		if err := inspect.CheckData(body, limits); err != nil {
			t.Errorf("%s: %v", key, err)
		}
		for bit := range 8 * len(body) {
			bad := bytes.Clone(body)
			bad[bit/8] ^= 1 << (bit % 8)
			if err := inspect.CheckData(bad, limits); !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat) {
				t.Fatalf("%s, bit %d: %v", key, bit, err)
			}
			n++
		}
		for size := range body {
			if err := inspect.CheckData(body[:size], limits); !errors.Is(err, fence.ErrCorrupt) {
				t.Fatalf("%s, %d bytes: %v", key, size, err)
			}
		}
	}
	if n == 0 {
		t.Error("there is no such object")
	}
}
