package state

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// segmented folds n segments of ten records each.
func segmented(n int) func(*Change) error {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = uuid.NewString()
	}
	return func(m *Change) error {
		var segs []Segment
		to := m.Floor
		for _, id := range ids {
			segs = append(segs, Segment{Key: layout.SegmentKey(layout.Compactor, 1, id), First: to.Offset, End: to.Offset + 10, Size: 200, Index: 96, From: testTime, To: testTime})
			to.Offset += 10
			to.Position.Seq++
		}
		return m.Fold(m.Floor, to, nil, segs, nil)
	}
}

func mustUpdate(t testing.TB, u *Updater, f func(*Change) error) *Manifest {
	t.Helper()
	m, err := u.Update(context.Background(), f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func segmentsOf(t testing.TB, l *Log, m *Manifest, from uint64) []Segment {
	t.Helper()
	var all []Segment
	for s, err := range l.Segments(context.Background(), m, from) {
		if err != nil {
			t.Fatal(err)
		}
		if n := len(all); n > 0 && all[n-1].End != s.First {
			t.Fatalf("%+v comes after %+v", s, all[n-1])
		}
		all = append(all, s)
	}
	return all
}

func droppedOf(t testing.TB, l *Log, m *Manifest) map[string]uint64 {
	t.Helper()
	all := map[string]uint64{}
	last := uint64(0)
	for d, err := range l.Dropped(context.Background(), m) {
		if err != nil {
			t.Fatal(err)
		}
		if d.Version < last || d.Version <= m.Forgotten {
			t.Fatalf("%+v comes after %d; %d is forgotten", d, last, m.Forgotten)
		}
		last, all[d.Key] = d.Version, d.Version
	}
	return all
}

// TestWeights: what decides whether a list fits is not less than it takes, and not
// much more.
func TestWeights(t *testing.T) {
	m := paged()
	m.Table.Files[1].Meta["<>"] = "\x00\u2028\U0001f600\""
	m.Segments[0].From = testTime.Add(1)
	big := *m
	big.Segments = []Segment{{Key: m.Segments[0].Key, First: math.MaxUint64, End: math.MaxUint64, Size: math.MaxInt64, Index: math.MaxInt64, From: testTime.Add(1), To: testTime.Add(1)}}
	big.Seals = []Seal{{Position: fence.Position{Epoch: math.MaxUint64, Seq: math.MaxUint64}, Next: math.MaxUint64, Offset: math.MaxUint64}}
	for _, m := range []*Manifest{m, &big} {
		for what, n := range map[string][2]int{
			"segments": {weight(&segmentList, m.Segments), len(fixture.JSON(t, m.Segments)) + 3*len(m.Segments)},
			"seals":    {weight(&sealList, m.Seals), len(fixture.JSON(t, m.Seals)) + 3*len(m.Seals)},
			"dropped":  {weight(&droppedList, m.Dropped), len(fixture.JSON(t, m.Dropped)) + 3*len(m.Dropped)},
			"files":    {weight(&fileList, m.Table.Files), len(fixture.JSON(t, m.Table.Files)) + 3*len(m.Table.Files)},
		} {
			if n[0] < n[1] || n[0] > n[1]*3/2 {
				t.Errorf("%s weigh %d and take %d", what, n[0], n[1])
			}
		}
	}
}

func TestSegmentsInPages(t *testing.T) {
	st, _ := fixture.Faults(nil)
	u := testUpdater(t, st, layout.Compactor, 1)
	var m *Manifest
	const rounds, each = 20, 300
	for i := range rounds {
		m = mustUpdate(t, u, segmented(each))
		if n := len(m.Segments); n > MaxInline || i > 4 && n < MaxInline/4 {
			t.Errorf("round %d: %d segments are inline", i, n)
		}
	}
	if n := len(m.SegmentPages); n != 2 || m.SegmentPages[0].Count < pageEntries/2 {
		t.Errorf("%d pages: %+v", n, m.SegmentPages)
	}
	l := testOpen(st)
	if n := len(segmentsOf(t, l, m, 0)); n != rounds*each {
		t.Errorf("%d segments", n)
	}
	for _, offset := range []uint64{0, 9, 10, 20479, 20480, 40959, 40960, 59999} {
		s, err := l.SegmentOf(t.Context(), m, offset)
		if err != nil || s.First > offset || s.End <= offset {
			t.Errorf("%d is in %+v, %v", offset, s, err)
		}
		if got := segmentsOf(t, l, m, offset); got[0] != s || uint64(len(got)) != rounds*each-offset/10 {
			t.Errorf("from %d there are %d, from %+v", offset, len(got), got[0])
		}
	}
	_, err := l.SegmentOf(t.Context(), m, 60000)
	fixture.WantErr(t, err, ErrPruned, "folded up to 60000")
	// The pages that were replaced are dropped, and nothing else.
	pages := l.Lists(m)
	for key := range droppedOf(t, l, m) {
		if _, _, ok := layout.ParseListKey(key); !ok || slices.Contains(pages, key) {
			t.Errorf("%s is dropped", key)
		}
		pages = append(pages, key)
	}
	if all := keysBelow(t, st, layout.ListPrefix); len(all) != len(pages) {
		t.Errorf("%d pages in the store, %d are named or dropped", len(all), len(pages))
	}
}

func keysBelow(t testing.TB, st store.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range store.ListAll(context.Background(), st, prefix, nil, quick) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// giveUp gives up the records before an offset, and lets go of their segments.
func giveUp(before uint64) func(*Change) error {
	return func(m *Change) error {
		err := m.Truncate(before)
		m.Release(before)
		return err
	}
}

// TestTruncate moves the start through pages and what is inline. What is given up is
// named until it is let go, and every segment before the start is dropped then.
func TestTruncate(t *testing.T) {
	st := memstore.New(nil)
	u := testUpdater(t, st, layout.Compactor, 1)
	const n = 2*pageEntries + 1000
	m := mustUpdate(t, u, segmented(n))
	l := testOpen(st)
	all := segmentsOf(t, l, m, 0)
	for _, start := range []uint64{5, 10, 25, 10 * pageEntries, 10*pageEntries + 1, 20 * pageEntries, 10*(n-100) + 3, 10 * n} {
		before := segmentsOf(t, l, m, 0)
		m = mustUpdate(t, u, func(m *Change) error { return m.Truncate(start) })
		if m.Start != start || m.First() != start || m.Held() != before[0].First {
			t.Errorf("truncated at %d: the start is %d, the first %d, and %d are held", start, m.Start, m.First(), m.Held())
		}
		if left := segmentsOf(t, l, m, 0); !slices.Equal(left, before) {
			t.Fatalf("truncated at %d: %d segments are left of %d before they are let go", start, len(left), len(before))
		}
		m = mustUpdate(t, u, func(m *Change) error { m.Release(start + 1000); return nil })
		if m.Start != start || m.First() != start {
			t.Errorf("let go at %d: the start is %d, the first %d", start, m.Start, m.First())
		}
		left := segmentsOf(t, l, m, 0)
		if want := all[start/10:]; !slices.Equal(left, want) {
			t.Fatalf("truncated at %d: %d segments are left, want %d", start, len(left), len(want))
		}
		dropped := droppedOf(t, l, m)
		for i, s := range all {
			if _, gone := dropped[s.Key]; gone != (s.End <= start) {
				t.Fatalf("truncated at %d: segment %d is dropped: %t", start, i, gone)
			}
		}
		_, err := l.SegmentOf(t.Context(), m, m.Held()-1)
		fixture.WantErr(t, err, ErrPruned, fmt.Sprintf("begins at %d", start))
	}
	// Nothing is taken back, and nothing promised that is not folded.
	if m = mustUpdate(t, u, func(m *Change) error { return m.Truncate(7) }); m.Start != 10*n {
		t.Errorf("the start is %d", m.Start)
	}
	if _, err := u.Update(t.Context(), func(m *Change) error { return m.Truncate(10*n + 1) }); err == nil || !strings.Contains(err.Error(), "compact first") {
		t.Error(err)
	}
	// The log goes on behind.
	if m = mustUpdate(t, u, segmented(3)); len(segmentsOf(t, l, m, 0)) != 3 {
		t.Errorf("%d segments", len(m.Segments))
	}
}

// TestForget: what was deleted leaves the list, from pages and from what is inline,
// also from the middle of a page.
func TestForget(t *testing.T) {
	st := memstore.New(nil)
	u := testUpdater(t, st, layout.Compactor, 1)
	l := testOpen(st)
	m := mustUpdate(t, u, segmented(3000))
	for start := uint64(500); start <= 30000; start += 500 { // 50 segments a version
		m = mustUpdate(t, u, giveUp(start))
	}
	if len(m.DroppedPages) == 0 {
		t.Fatal("there are no pages")
	}
	before := droppedOf(t, l, m)
	if m = mustUpdate(t, u, func(m *Change) error { m.Forget(50); return nil }); m.Forgotten != 0 {
		t.Errorf("%d is forgotten, and nothing is below the mark", m.Forgotten)
	}
	for _, upTo := range []uint64{20, 35, m.Version - 1} {
		m = mustUpdate(t, u, func(m *Change) error {
			m.PruneMark = upTo
			m.Forget(upTo)
			m.Forget(upTo - 1) // which takes nothing back
			return nil
		})
		left := droppedOf(t, l, m)
		for key, version := range before {
			if _, listed := left[key]; listed != (version > upTo) {
				t.Fatalf("forgotten up to %d: what version %d dropped is listed: %t", upTo, version, listed)
			}
		}
		for key := range left {
			if _, was := before[key]; !was {
				if _, _, page := layout.ParseListKey(key); !page {
					t.Errorf("%s is dropped", key)
				}
			}
		}
	}
	// The pages that held them are listed in their turn.
	named := append(l.Lists(m), slices.Collect(mapsKeys(droppedOf(t, l, m)))...)
	for _, key := range keysBelow(t, st, layout.ListPrefix) {
		if _, was := before[key]; !was && !slices.Contains(named, key) {
			t.Errorf("%s is neither named nor dropped", key)
		}
	}
}

func mapsKeys(m map[string]uint64) func(func(string) bool) {
	return func(yield func(string) bool) {
		for key := range m {
			if !yield(key) {
				return
			}
		}
	}
}

// TestFullestManifest: at the least limit a log can have, and whatever happens in one
// update, the manifest fits and can be read.
func TestFullestManifest(t *testing.T) {
	st := memstore.New(nil)
	f := testFormat()
	f.Limits.Cursor = fence.MaxCursor
	f.Limits.Manifest = leastRoom + 2*1398104
	if err := layout.CheckLimits(f.Limits); err != nil {
		t.Fatal(err)
	}
	w := newTableModel(t, st, f)
	w.meta = 150
	cursor := make([]byte, fence.MaxCursor)
	w.update(func(m *Change) error {
		if err := segmented(3000)(m); err != nil {
			return err
		}
		m.Floor.Cursor = cursor
		to := m.Floor
		var seals []Seal
		for e := range fence.Epoch(3000) {
			seals = append(seals, Seal{Position: fence.Position{Epoch: 1 + e, Seq: 1 << 60}, Next: 2 + e, Nonce: testNonce, Offset: to.Offset})
		}
		to.Position = fence.Position{Epoch: 3001, Seq: 1 << 60}
		return m.Fold(m.Floor, to, seals, nil, nil)
	})
	w.grow(2000, true)
	w.commit(remove(w.keys()[:700]...))
	w.commit(&manifest.Edit{Properties: map[string]string{"x": strings.Repeat("\x01", (manifest.MaxProperties-16)/6)}})
	w.update(func(m *Change) error {
		h := m.Floor
		h.Position.Seq++
		m.Hint = &h
		return giveUp(m.Floor.Offset)(m)
	})
	w.gone += 3000
	l := With(st, f, nil)
	if dropped := droppedOf(t, l, w.m); len(dropped) < 3700 {
		t.Errorf("%d are dropped", len(dropped))
	}
	b := encodedAt(t, w.m, f.Limits.Manifest)
	t.Logf("%d bytes of %d beside the cursors", len(b)-2*1398104, leastRoom)
}

func encodedAt(t testing.TB, m *Manifest, limit int64) []byte {
	t.Helper()
	b, err := m.encode(limit)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A manifest is not published before its pages are there.
//
// guard:pages-first. Without this wait: an updater creates manifest 9 while a page of it is still in
// flight; a reader reads manifest 9, and does not find the page.
func TestPagesFirst(t *testing.T) {
	st, inner := fixture.Faults(&faultstore.Options{Hook: faultstore.Script(faultstore.Rule{
		Kind: faultstore.Put, Prefix: layout.ListPrefix, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied},
	})})
	u := testUpdater(t, st, layout.Compactor, 1)
	if _, err := u.Update(t.Context(), segmented(2000)); !errors.Is(err, store.ErrDenied) || errors.Is(err, store.ErrUnknown) {
		t.Error(err)
	}
	if n := len(keysBelow(t, inner, layout.ManifestPrefix)); n != 0 {
		t.Errorf("%d manifests", n)
	}
	st.SetHook(nil)
	st.SetBefore(func(_ context.Context, op faultstore.Op) {
		if op.Kind != faultstore.Put || !strings.HasPrefix(op.Key, layout.ManifestPrefix) {
			return
		}
		if n := len(keysBelow(t, inner, layout.ListPrefix)); n != 1 {
			t.Errorf("%d pages when the manifest is created", n)
		}
	})
	if m := mustUpdate(t, u, segmented(2000)); len(m.SegmentPages) != 1 {
		t.Errorf("%d pages", len(m.SegmentPages))
	}
}

// An update that has to be tried again uploads nothing twice; but pages of lists that have changed
// since are not named.
//
// guard:page-reuse. Without this check: the list changes between the two tries; the manifest names the
// page of the first try, which has the old entries; the new entries are in no page.
func TestPagesAreReused(t *testing.T) {
	for _, changes := range []bool{false, true} {
		st, inner := fixture.Faults(nil)
		u := testUpdater(t, st, layout.Compactor, 1)
		mustUpdate(t, u, segmented(900))
		other := testUpdater(t, st.Client("other"), layout.Writer, 1)
		tries, mine := 0, segmented(1000)
		m := mustUpdate(t, u, func(m *Change) error {
			if tries++; tries <= 3 {
				mustUpdate(t, other, func(m *Change) error {
					if changes {
						return segmented(10)(m)
					}
					h := m.Floor
					h.Position.Seq += uint64(tries)
					m.Hint = &h
					return nil
				})
			}
			return mine(m)
		})
		want := 1
		if changes {
			want = 4
		}
		if n := len(keysBelow(t, inner, layout.ListPrefix+"compactor/")); n != want || tries != 4 {
			t.Errorf("lists change: %t: %d pages are uploaded in %d tries, want %d", changes, n, tries, want)
		}
		l := testOpen(st)
		if n := len(segmentsOf(t, l, m, 0)); changes && n != 1930 || !changes && n != 1900 {
			t.Errorf("%d segments", n)
		}
	}
}

// TestTidyOvertaken: a compactor that slept while its successor replaced and
// deleted the pages that it wants to fill up finds out that it is fenced; no page of
// its own is named.
func TestTidyOvertaken(t *testing.T) {
	st, inner := fixture.Faults(nil)
	u := testUpdater(t, st, layout.Compactor, 1)
	mustUpdate(t, u, segmented(2000))
	done := st.BeforeFirst(func(op faultstore.Op) bool {
		return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, layout.ListPrefix)
	}, func(context.Context) {
		next := testUpdater(t, inner, layout.Compactor, 2)
		mustUpdate(t, next, segmented(1000))
		m := mustUpdate(t, next, func(m *Change) error { m.PruneMark = m.Version; return nil })
		for key := range droppedOf(t, testOpen(inner), m) {
			if err := inner.Delete(context.Background(), key); err != nil {
				t.Error(err)
			}
		}
	})
	// It has forgotten the page: it is another process, with the same token.
	_, err := testUpdater(t, st, layout.Compactor, 1).Update(t.Context(), segmented(1000))
	if !errors.Is(err, fence.ErrFenced) || !done() {
		t.Errorf("%v", err)
	}
	if n := len(segmentsOf(t, testOpen(inner), newest(t, inner), 0)); n != 3000 {
		t.Errorf("%d segments", n)
	}
}
