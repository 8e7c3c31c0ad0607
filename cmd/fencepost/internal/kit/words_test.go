package kit

import (
	"strings"
	"testing"
	"time"
)

// TestTimesHaveZones, so that two operators mean the same moment.
func TestTimesHaveZones(t *testing.T) {
	at := time.Date(2026, 11, 22, 9, 30, 0, 0, time.FixedZone("", 3600))
	if got := When(at); !strings.HasPrefix(got, "2026-11-22 ") || !(strings.HasSuffix(got, "Z") || strings.Contains(got[11:], "+") || strings.Contains(got[11:], "-")) {
		t.Error(got)
	}
	for d, want := range map[time.Duration]string{500_823_427: "501ms", 61*time.Second + 7: "1m1s", 2_345_678_901: "2.35s", -5: "0s", 1234: "1.234µs"} {
		if got := Brief(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
}
