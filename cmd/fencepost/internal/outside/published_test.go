package outside

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"
)

// TestAbsurdTime: a time that JSON cannot say is left out. It breaks nothing else.
func TestAbsurdTime(t *testing.T) {
	for ms, fine := range map[int64]bool{1e12: true, 0: true, 1e15: false, -1e15: false, math.MaxInt64: false, math.MinInt64: false} {
		p := parseCommit(fmt.Appendf(nil, `{"txn":{"appId":"x","version":7,"lastUpdated":%d}}`, ms), "x")
		if p == nil || p.Edits != 7 || p.At.IsZero() == fine {
			t.Errorf("%d: %+v", ms, p)
		}
		if _, err := json.Marshal(p); err != nil {
			t.Errorf("%d: %v", ms, err)
		}
	}
}
