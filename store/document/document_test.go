package document

import (
	"math"
	"testing"
	"time"
)

// A duration is read as it was written.
func TestDuration(t *testing.T) {
	for _, d := range []time.Duration{0, 1, time.Millisecond, 10 * time.Minute, math.MaxInt64} {
		var got Duration
		b, err := Duration(d).MarshalText()
		if err == nil {
			err = got.UnmarshalText(b)
		}
		if err != nil || time.Duration(got) != d {
			t.Errorf("%v became %v: %v", d, time.Duration(got), err)
		}
	}
}
