package state

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// Each new page of each list is lost, and made again from the version before it and the edits
// between the two.
//
// guard:rebuild-same. A repair makes a lost or damaged page again from an older manifest version.
// Without this check: the older version names as many segments for these records, but other ones, which
// a merge has replaced since; the repair overwrites the damaged page with a page of these; every reader
// refuses that page too (guard page-content), and what was left of the right one is gone.
func TestRebuild(t *testing.T) {
	st := memstore.New(nil)
	w := newTableModel(t, st, testFormat())
	var log []AppliedEdit
	made := map[string]int{}
	// step folds some segments, and an edit that adds some files and removes others.
	step := func(segments, add, remove int) {
		before := w.m
		live := w.keys()
		w.rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		e := &manifest.Edit{Remove: live[:remove]}
		for range add {
			e.Add = append(e.Add, w.file(false))
		}
		for _, f := range e.Add {
			w.files[f.Key] = f
		}
		for _, key := range e.Remove {
			delete(w.files, key)
		}
		var segs []Segment
		to := before.Floor
		log = append(log, AppliedEdit{Position: to.Position, Offset: to.Offset, Edit: e})
		to.Position.Seq++
		for range segments {
			segs = append(segs, Segment{Key: layout.SegmentKey(layout.Compactor, 1, uuid.NewString()), First: to.Offset, End: to.Offset + 10, Size: 200, Index: 96, From: testTime, To: testTime})
			to.Offset += 10
			to.Position.Seq++
		}
		w.update(func(m *Change) error { return m.Fold(m.Floor, to, nil, segs, log[len(log)-1:]) })
		known := w.l.Lists(before)
		for _, page := range w.l.Pages(w.m) {
			if slices.Contains(known, page.Key) {
				continue
			}
			made[listOf(w.m, page.Key)]++
			lost, _, err := store.Read(t.Context(), st, page.Key, &store.ReadOptions{Limit: 8 << 20, Settle: quick})
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Delete(t.Context(), page.Key); err != nil {
				t.Fatal(err)
			}
			l := testOpen(st) // it has no page in memory
			got, err := l.Rebuild(t.Context(), w.m, page.Key, func(_ context.Context, from, to frame.Point) ([]AppliedEdit, error) {
				return slices.DeleteFunc(slices.Clone(log), func(e AppliedEdit) bool {
					return e.Position.Before(from.Position) || !e.Position.Before(to.Position)
				}), nil
			})
			if err != nil || !bytes.Equal(got, lost) {
				t.Errorf("version %d, a page of %s: %d bytes, %v; it had %d", w.m.Version, listOf(w.m, page.Key), len(got), err, len(lost))
			}
			if _, err := st.Put(t.Context(), page.Key, lost, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	rounds := test.Of(5, 12)
	step(0, 9*MaxInline, 0)
	for range rounds {
		step(MaxInline/4, MaxInline/3, MaxInline/4)
	}
	step(0, 0, 3*MaxInline/2)
	for range rounds {
		step(0, MaxInline/2, MaxInline)
	}
	for _, list := range []string{"segments", "dropped", "files", "removed"} {
		if made[list] == 0 {
			t.Errorf("no page of %s was made: %v", list, made)
		}
	}
	t.Log(made)
}

// listOf is the list of which an object is a page.
func listOf(m *Manifest, key string) string {
	whole := func(p Page[uint64]) bool { return p.Key == key }
	text := func(p Page[string]) bool { return p.Key == key }
	for name, found := range map[string]bool{
		"segments": slices.ContainsFunc(m.SegmentPages, whole), "seals": slices.ContainsFunc(m.SealPages, whole), "dropped": slices.ContainsFunc(m.DroppedPages, whole),
		"files": slices.ContainsFunc(m.FilePages, text), "removed": slices.ContainsFunc(m.RemovedPages, text),
	} {
		if found {
			return name
		}
	}
	return fmt.Sprintf("none: %s", key)
}
