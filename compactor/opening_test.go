package compactor

import (
	"context"
	"fmt"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/writer"
)

// On a compacted log opening a reader takes 8 requests at most, first record and all,
// and so does a writer up to its first acknowledgement, and not one more if there were a
// hundred times as many commits, leaderships and segments.
func TestOpeningCosts(t *testing.T) {
	var was []int
	for _, leaders := range []int{2, 200} {
		w := newWorld(t, 0, nil)
		o := small()
		o.FanIn, o.SegmentBytes = 64, 1<<20
		for range leaders {
			w.lead(50)
			w.compact(w.mem, o)
		}
		w.lead(0) // has opened, and left
		w.compact(w.mem, o)
		ctx := context.Background()
		var counts []int
		read := func(what string, from uint64) {
			w.faulty.ResetCounts()
			r, err := reader.Open(ctx, w.faulty, &reader.Options{Settle: quick})
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
			counts = append(counts, w.faulty.Counts().Of("", ""))
		}
		n := uint64(len(w.want))
		read("the first record", 0)
		read("one in the middle", n/2)
		read("the last record", n-1)
		w.faulty.ResetCounts()
		wr, err := writer.Open(ctx, w.faulty, fence.NewToken(w.epoch+1), &writer.Options{Settle: quick, Checkpoint: -1})
		if err != nil {
			t.Fatal(err)
		}
		// Without checkpoints: beside its work a writer publishes its epoch in a manifest, which
		// nobody waits for.
		counts = append(counts, w.faulty.Counts().Of("", ""))
		w.append(wr, "first")
		counts = append(counts, w.faulty.Counts().Of("", ""))
		w.close(wr)
		t.Logf("%d commits, %d segments: reading the first record, one in the middle, the last: %v requests; opening a writer, and its first commit: %v",
			n, len(w.newest().Segments), counts[:3], counts[3:])
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
