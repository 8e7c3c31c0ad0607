package compactor

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// A reader that begins at any record, and is overtaken by a compactor that folds,
// merges and prunes everything without any grace, at any of its requests or between
// any two records, reads what there is, each record once.
func TestReaderOvertaken(t *testing.T) {
	base := sample(t)
	all := func(st store.Store, from uint64, each func(n int)) ([]string, error) {
		r, err := reader.Open(context.Background(), st, &reader.Options{Settle: quick})
		if err != nil {
			return nil, err
		}
		var got []string
		for rec, err := range r.Read(context.Background(), from) {
			if err != nil {
				return got, err
			}
			if rec.Offset != from+uint64(len(got)) {
				return got, fmt.Errorf("record %d has offset %d", from+uint64(len(got)), rec.Offset)
			}
			got = append(got, string(rec.Value))
			each(len(got))
		}
		return got, nil
	}
	overtake := func(w *world) {
		w.compact(w.mem, small())
		w.lead(2)
		w.compact(w.mem, small())
	}
	check := func(w *world, when string, got []string, err error, from int) {
		t.Helper()
		// Records that came while it was on its way it may or may not have seen.
		if err != nil || len(got) < len(base.want)-from || !slices.Equal(got, w.want[from:from+len(got)]) {
			t.Fatalf("%s: %q, %v; want %q", when, got, err, w.want[from:])
		}
	}
	for from := range base.want {
		for at := range len(base.want) - from {
			w := base.fork(t)
			got, err := all(w.mem, uint64(from), func(n int) {
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
			w.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
				if op.ClientN == n && op.Client == "reader" {
					overtake(w)
				}
			})
			got, err := all(w.faulty.Client("reader"), uint64(from), func(int) {})
			check(w, fmt.Sprintf("from %d, overtaken at request %d", from, n), got, err, from)
		}
	}
}

// A reader that is a month behind while everything around it is pruned goes on
// where it was.
func TestReaderMonthLate(t *testing.T) {
	w := sample(t)
	r, err := reader.Open(t.Context(), w.mem, &reader.Options{Settle: quick})
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for rec, err := range r.Read(t.Context(), 0) {
		if err != nil || rec.Offset != uint64(read) || string(rec.Value) != w.want[read] {
			t.Fatalf("record %d is %q at %d, %v", read, rec.Value, rec.Offset, err)
		}
		if read++; read == 3 {
			for range 30 {
				w.lead(2)
				w.compact(w.mem, small())
			}
		}
	}
	if read != len(w.want) {
		t.Errorf("%d records of %d", read, len(w.want))
	}
}
