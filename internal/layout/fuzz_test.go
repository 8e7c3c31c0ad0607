package layout

import (
	"testing"

	"github.com/fencepost/fencepost/fence"
)

// Only canonical keys are read.
func FuzzParseDataKey(f *testing.F) {
	f.Add(DataKey(fence.Position{Epoch: 0, Seq: 1}))
	f.Add("data/" + d20 + "/" + d20)
	f.Fuzz(func(t *testing.T, key string) {
		if p, ok := ParseDataKey(key); ok && (DataKey(p) != key || p.Seq == 0) {
			t.Errorf("%q is read as %v, whose key is %q", key, p, DataKey(p))
		}
	})
}

func FuzzParseNumber(f *testing.F) {
	f.Add("18446744073709551615")
	f.Add("18446744073709551616")
	f.Fuzz(func(t *testing.T, s string) {
		if n, ok := ParseNumber(s); ok && FormatNumber(n) != s {
			t.Errorf("%q is read as %d", s, n)
		}
	})
}
