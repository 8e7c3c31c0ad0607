package group_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test"
)

var days = flag.Int("days", 1, "how many days of virtual time TestWhatGrows takes; docs/sizing.md has what 30 gave")

// TestWhatGrows counts the objects of a group of two workers, of which one is killed each day and
// another one comes.
func TestWhatGrows(t *testing.T) {
	day := time.Duration(test.Of(4, 24)) * time.Hour // nothing grows during it
	inWorld(t, 8, func(w *world) {
		stays := w.worker("stays")
		for i := range *days {
			x := w.worker(fmt.Sprint("day ", i))
			time.Sleep(day)
			x.crash()
		}
		kinds, n := map[string]int{}, 0
		for info, err := range w.mem.List(w.Context(), "", nil) {
			if err != nil {
				t.Fatal(err)
			}
			kind, _, _ := strings.Cut(info.Key, "/")
			kinds[kind]++
			n++
		}
		t.Logf("day %d: %v", *days, kinds)
		if n > 60 {
			t.Errorf("there are %d objects", n)
		}
		w.end(stays)
	})
}
