package delta_test

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/internal/layout"
)

var days = flag.Int("days", 2, "how many days of virtual time TestWhatGrows takes; docs/sizing.md has what 30 gave")

// TestWhatGrows counts what a table in use leaves in a store: an edit an hour that replaces a
// file, and a publisher that publishes it, with a retention of a week. Another program vacuums
// nothing, and only a compactor deletes files.
func TestWhatGrows(t *testing.T) {
	for name, compacts := range map[string]bool{"without a compactor": false, "with one": true} {
		t.Run(name, func(t *testing.T) {
			inLake(t, func(t *testing.T, k *lake) {
				p := k.publisher(nil, &delta.Options{Retention: 7 * 24 * time.Hour})
				var last []string
				for range *days {
					for range 24 {
						last = []string{k.rows(1, last...)}
						k.publish(p)
						if compacts {
							k.compact()
						}
						time.Sleep(time.Hour)
					}
				}
				kinds := map[string]int{}
				for _, key := range k.Keys("") {
					kind := layout.KindOf(key)
					if strings.HasPrefix(key, layout.DeltaPrefix) {
						kind = "_delta_log"
					}
					kinds[kind]++
				}
				t.Logf("day %d: %v", *days, kinds)
				// A week and a hundred versions more, between two checkpoints.
				if kinds["_delta_log"] > 24*7+150 || kinds["pin"] > 20 || compacts && kinds["file"] > 24*9 {
					t.Errorf("there are %v", kinds)
				}
			})
		})
	}
}
