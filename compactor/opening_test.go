package compactor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// On a compacted log opening a reader takes 8 requests at most, first record and all,
// and so does a writer up to its first acknowledgement, and not one more if there were a
// hundred times as many commits, leaderships and segments.
func TestOpeningCosts(t *testing.T) {
	var was []int
	for _, leaders := range []int{2, test.Of(60, 200)} {
		w := newWorld(t, 0, nil)
		o := small()
		o.FanIn, o.SegmentBytes = 64, 1<<20
		for range leaders {
			w.Lead(50)
			w.compact(w.Mem, o)
		}
		w.Lead(0) // has opened, and left
		w.compact(w.Mem, o)
		ctx := context.Background()
		var counts []int
		read := func(what string, from uint64) {
			w.Faulty.ResetCounts()
			r, err := reader.Open(ctx, w.Faulty, &reader.Options{Settle: logtest.Quick})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for rec, err := range r.Read(ctx, from) {
				if err != nil || rec.Offset != from {
					t.Fatalf("%s: %d, %v", what, rec.Offset, err)
				}
				break
			}
			counts = append(counts, w.Faulty.Counts().Of("", ""))
		}
		n := uint64(len(w.History()))
		read("the first record", 0)
		read("one in the middle", n/2)
		read("the last record", n-1)
		// Beside its work a writer publishes its epoch in a manifest, which nobody waits for.
		// Opening lists the manifests twice; whoever does so a third time waits.
		var mu sync.Mutex
		count, lists, opened := 0, 0, make(chan struct{})
		w.Faulty.SetBefore(func(ctx context.Context, op faultstore.Op) {
			mu.Lock()
			if op.Kind == faultstore.List {
				lists++
			}
			late := lists > 2 && strings.HasPrefix(op.Key, layout.ManifestPrefix)
			if !late {
				count++
			}
			mu.Unlock()
			if late {
				select {
				case <-opened:
				case <-ctx.Done():
				}
			}
		})
		so := func() int {
			mu.Lock()
			defer mu.Unlock()
			return count
		}
		wr := w.open(w.Faulty)
		counts = append(counts, so())
		close(opened)
		w.Append(wr, "first")
		counts = append(counts, so())
		w.Close(wr)
		w.Faulty.SetBefore(nil)
		t.Logf("%d commits, %d segments: reading the first record, one in the middle, the last: %v requests; opening a writer, and its first commit: %v",
			n, len(w.Newest().Segments), counts[:3], counts[3:])
		for _, n := range counts {
			if n > 8 {
				t.Errorf("%v requests", counts)
			}
		}
		if was != nil && fmt.Sprint(was) != fmt.Sprint(counts) {
			t.Errorf("%v requests, on a log of a hundredth %v", counts, was)
		}
		was = counts
	}
}
