package reader_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// guard:read-oldest-now. A caller that asks for the oldest record gets the oldest that is
// left, also if the one that was the oldest is truncated while it is being fetched.
func TestOldestIsGivenUp(t *testing.T) {
	inBubble(t, time.Hour, func(t *testing.T, w *world) {
		w.Lead(8)
		w.compact(2)
		w.Lead(8)
		r, before := w.reader(nil), false
		w.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			if before || op.Kind != faultstore.Get || !strings.HasPrefix(op.Key, "segment/") {
				return
			}
			before = true
			w.compact(2)
			w.truncate(12)
			for range 3 {
				time.Sleep(24 * time.Hour)
				w.compact(2)
			}
		})
		var first uint64
		n := 0
		for rec, err := range r.Read(t.Context(), reader.Oldest) {
			if err != nil {
				t.Fatalf("after %d records: %v", n, err)
			}
			if n++; n == 1 {
				first = rec.Offset
			}
		}
		if end := len(w.History()); !before || first == 0 || first != w.Newest().First() || int(first)+n != end {
			t.Errorf("%d records from %d on; the log has those from %d to %d", n, first, w.Newest().First(), end)
		}
	})
}
