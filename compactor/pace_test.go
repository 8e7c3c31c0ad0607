package compactor

import (
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// What a compactor does takes as long as its limits say, in virtual time, and no
// longer without any.
func TestPace(t *testing.T) {
	for name, c := range map[string]struct {
		o           Options
		least, most time.Duration
	}{
		"no limit": {Options{}, 0, 0},
		// 200 objects are read, and some lists and deletes.
		"requests": {Options{RequestsPerSecond: 10}, 19 * time.Second, 30 * time.Second},
		// Each has 128 bytes and more, and is read, written and, when merged, both again.
		"bytes":     {Options{BytesPerSecond: 1000}, 25 * time.Second, 120 * time.Second},
		"both":      {Options{RequestsPerSecond: 10, BytesPerSecond: 1_000_000}, 19 * time.Second, 30 * time.Second},
		"very slow": {Options{BytesPerSecond: 1, RequestsPerSecond: 1}, 200 * 128 * time.Second, 100_000 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 0, func(t *testing.T, w *world) {
				w.Lead(100)
				w.compact(w.Mem, nil)
				w.Lead(200)
				o := running(&c.o)
				o.FanIn, o.Levels, o.NoCompress = 2, 40, true
				began := clock.Go().Now()
				w.compact(w.Mem, o)
				if took := clock.Go().Now().Sub(began); took < c.least || took > c.most {
					t.Errorf("it took %v, want %v to %v", took, c.least, c.most)
				}
				w.holds("at the end")
			})
		})
	}
}
