package compactor

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store/faultstore"
)

// A reader that begins at any record, and is overtaken by a compactor that folds,
// merges and prunes everything without any grace, at any of its requests or between
// any two records, reads what there is, each record once.
func TestReaderOvertaken(t *testing.T) {
	base := sample(t)
	overtake := func(w *world) {
		w.compact(w.Mem, small())
		w.Lead(2)
		w.compact(w.Mem, small())
	}
	check := func(w *world, when string, got []string, err error, from int) {
		t.Helper()
		// Records that came while it was on its way it may or may not have seen.
		if err != nil || len(got) < len(base.History())-from || !slices.Equal(got, w.History()[from:from+len(got)]) {
			t.Fatalf("%s: %q, %v; want %q", when, got, err, w.History()[from:])
		}
	}
	for from := range base.History() {
		for at := range len(base.History()) - from {
			w := base.fork(t)
			got, err := logtest.Read(w.Mem, uint64(from), func(n int) {
				if n == at+1 {
					overtake(w)
				}
			})
			check(w, fmt.Sprintf("from %d, overtaken after %d records", from, at+1), got, err, from)
		}
	}
	for _, from := range []int{0, 1, 3, 5, 7, 9} {
		for n := 1; n <= 60; n++ { // more than it makes
			w := base.fork(t)
			w.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
				if op.ClientN == n && op.Client == "reader" {
					overtake(w)
				}
			})
			got, err := logtest.Read(w.Faulty.Client("reader"), uint64(from), nil)
			check(w, fmt.Sprintf("from %d, overtaken at request %d", from, n), got, err, from)
		}
	}
}

// A reader that sleeps for a month, while everything around it is pruned, goes on where it
// was.
func TestReaderMonthLate(t *testing.T) {
	w := sample(t)
	got, err := logtest.Read(w.Mem, 0, func(n int) {
		if n == 3 {
			for range 30 {
				w.Lead(2)
				w.compact(w.Mem, small())
			}
		}
	})
	if err != nil || !slices.Equal(got, w.History()) {
		t.Errorf("%d records of %d, %v", len(got), len(w.History()), err)
	}
}
