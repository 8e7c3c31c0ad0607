package cat

import (
	"bufio"
	"bytes"
	"testing"
)

// TestGatheringStops: a flush that had begun to wait when stop came writes nothing, since the caller writes the same.
func TestGatheringStops(t *testing.T) {
	var b bytes.Buffer
	l := newGathering(bufio.NewWriter(&b), func(err error) { t.Error(err) }, func() func() { return func() {} })
	if _, err := l.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.flush()
	if b.Len() > 0 {
		t.Errorf("%q", &b)
	}
}
