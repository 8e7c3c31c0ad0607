package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

func applied(seq uint64, e *manifest.Edit) AppliedEdit {
	return AppliedEdit{Position: fence.Position{Epoch: 3, Seq: seq}, Offset: 1000, Edit: e}
}

func add(keys ...string) *manifest.Edit {
	e := &manifest.Edit{}
	for _, key := range keys {
		e.Add = append(e.Add, manifest.File{Key: key, Size: 1})
	}
	return e
}

func remove(keys ...string) *manifest.Edit { return &manifest.Edit{Remove: keys} }

// foldEdits is a fold of nothing but edits.
func foldEdits(m *Manifest, edits ...AppliedEdit) error {
	to := m.Floor
	to.Position.Seq += uint64(len(edits))
	m.Hint = nil
	return (&Change{m}).Fold(m.Floor, to, nil, nil, edits)
}

func TestFoldEdits(t *testing.T) {
	m := full()
	err := foldEdits(m,
		applied(4, &manifest.Edit{Add: add(testFile(3, 5)).Add, Remove: []string{testFile(1, 7)}, Properties: map[string]string{"schema": "4", "x": "y"}}),
		applied(5, &manifest.Edit{Add: add(testFile(3, 6)).Add, Remove: []string{testFile(3, 5), testFile(3, 1)}, Unset: []string{"x"}}),
	)
	if err != nil {
		t.Fatal(err)
	}
	m.Version++ // as Update does
	if err := m.check(layout.ManifestKey(43), testFormat()); err != nil {
		t.Error(err)
	}
	var files, dropped []string
	for _, f := range m.Table.Files {
		files = append(files, f.Key)
	}
	for _, d := range m.Dropped {
		if d.Version == 43 {
			dropped = append(dropped, d.Key)
		}
	}
	if m.Edits != 19 || m.EditedAt != 1000 || !maps.Equal(m.Properties, map[string]string{"schema": "4"}) || m.Live() != 901-2-2+2 ||
		!slices.Equal(files, []string{testFile(3, 2), testFile(3, 6)}) || !slices.Equal(m.Removed, []string{testFile(1, 4), testFile(1, 7)}) ||
		!slices.Equal(dropped, []string{testFile(1, 7), testFile(3, 5), testFile(3, 1)}) {
		t.Errorf("%s", fixture.JSON(t, m))
	}
}

// TestFoldRefusesEdits that no correct writer commits, names the object that holds
// them, and changes nothing.
//
// guard:edit-epoch. Without this rule: epoch 1 is sealed and folded; a compactor deletes a file of
// epoch 1 that no edit has added; an edit of a faulty writer in epoch 2 adds this file, and the table
// names a file that is gone.
//
// guard:edit-again. A file in a page is not noticed, because a fold does not read the page. Without
// this check: edit 1 adds file f, edit 2 removes it, and both are folded; edit 3 of a faulty writer
// adds file f again, and readers find file f in the table; a compactor deletes file f, as edit 2
// allows; the table names a file that is gone.
//
// guard:edit-live. A file that may be in a page of the manifest is accepted, because a fold does not
// read the page. Without this check: a faulty writer commits two edits that remove file f, which is in
// no page; a reader applies both; its table notes file f as removed from a page, and counts one live
// file too few.
func TestFoldRefusesEdits(t *testing.T) {
	for name, tt := range map[string]struct {
		edits []AppliedEdit
		says  string
	}{
		"guard:edit-epoch. earlier":          {[]AppliedEdit{applied(5, add(testFile(2, 9)))}, "a file of another epoch"},
		"guard:edit-epoch. later":            {[]AppliedEdit{applied(5, add(testFile(4, 9)))}, "a file of another epoch"},
		"guard:edit-again. live":             {[]AppliedEdit{applied(5, add(testFile(3, 1)))}, "is live or was removed before"},
		"guard:edit-again. twice":            {[]AppliedEdit{applied(4, add(testFile(3, 9))), applied(5, add(testFile(3, 9)))}, "is live or was removed before"},
		"guard:edit-again. removed":          {[]AppliedEdit{applied(4, remove(testFile(3, 1))), applied(5, add(testFile(3, 1)))}, "is live or was removed before"},
		"guard:edit-live. in no page":        {[]AppliedEdit{applied(5, remove(testFile(2, 6)))}, "which is not live"},
		"guard:edit-live. removed earlier":   {[]AppliedEdit{applied(5, remove(testFile(1, 4)))}, "which is not live"},
		"guard:edit-live. removed just now":  {[]AppliedEdit{applied(4, remove(testFile(1, 5))), applied(5, remove(testFile(1, 5)))}, "which is not live"},
		"guard:edit-live. added and removed": {[]AppliedEdit{applied(3, add(testFile(3, 9))), applied(4, remove(testFile(3, 9))), applied(5, remove(testFile(3, 9)))}, "which is not live"},
		"shape":                              {[]AppliedEdit{applied(5, &manifest.Edit{})}, "changes nothing"},
		"backwards":                          {[]AppliedEdit{{Position: fence.Position{Epoch: 3, Seq: 5}, Offset: 899, Edit: add(testFile(3, 9))}}, "lies at offset 899"},
		"too many properties": {[]AppliedEdit{
			applied(4, &manifest.Edit{Properties: map[string]string{"a": string(make([]byte, manifest.MaxProperties/7))}}),
			applied(5, &manifest.Edit{Properties: map[string]string{"b": string(make([]byte, manifest.MaxProperties/7))}}),
		}, "the properties have"},
	} {
		m := full()
		m.Hint = nil
		before := fixture.JSON(t, m)
		err := foldEdits(m, tt.edits...)
		fixture.WantErr(t, err, fence.ErrCorrupt, tt.says)
		fixture.WantErr(t, err, fence.ErrCorrupt, layout.DataKey(fence.Position{Epoch: 3, Seq: 5}))
		if fixture.JSON(t, m) != before {
			t.Errorf("%s: it became\n%s", name, fixture.JSON(t, m))
		}
	}
}

func TestApply(t *testing.T) {
	m := full()
	before := fixture.JSON(t, m)
	got, err := m.Apply([]AppliedEdit{applied(4, &manifest.Edit{Remove: []string{testFile(3, 1)}, Properties: map[string]string{"a": "b"}})})
	if err != nil || len(got.Table.Files) != 1 || got.Properties["a"] != "b" || !got.Floor.Equal(m.Floor) {
		t.Errorf("%s, %v", fixture.JSON(t, got), err)
	}
	if fixture.JSON(t, m) != before {
		t.Errorf("it changed\n%s to\n%s", before, fixture.JSON(t, m))
	}
	if got, err := m.Apply([]AppliedEdit{applied(4, add(testFile(2, 1)))}); err == nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}

// tableModel is a table that a test keeps beside the log's.
type tableModel struct {
	t     testing.TB
	rng   *rand.Rand
	l     *Log
	u     *Updater
	m     *Manifest
	files map[string]manifest.File
	gone  int
	meta  int // bytes of meta of each file
}

func newTableModel(t testing.TB, st store.Store, f manifest.Format) *tableModel {
	t.Helper()
	l := With(st, f, &Options{Settle: quick})
	u, err := l.Updater(layout.Compactor, fence.NewToken(1))
	if err != nil {
		t.Fatal(err)
	}
	w := &tableModel{t: t, rng: rand.New(rand.NewPCG(1, 2)), l: l, u: u, files: map[string]manifest.File{}}
	to := frame.Start()
	to.Position = fence.Position{Epoch: 1, Seq: 1}
	w.update(func(m *Change) error {
		return m.Fold(m.Floor, to, []Seal{{Position: frame.Genesis(), Next: 1, Nonce: testNonce}}, nil, nil)
	})
	return w
}

func (w *tableModel) update(f func(*Change) error) {
	w.t.Helper()
	m, err := w.u.Update(context.Background(), f)
	if err != nil {
		w.t.Fatal(err)
	}
	w.m = m
}

// TestFileThatIsInAPage: a faulty writer adds files that are live in a page. No manifest with a page that has one twice
// is published.
//
// guard:page-twice. Without this check: a faulty writer adds file f, which is live in a page; a
// compactor writes f twice into the next page, and publishes a manifest that names it; every reader
// refuses that page, so nobody can read the table any more.
func TestFileThatIsInAPage(t *testing.T) {
	w := newTableModel(t, memstore.New(nil), testFormat())
	w.grow(5000, false)
	e := &manifest.Edit{}
	for _, key := range w.keys()[:2*MaxInline] {
		e.Add = append(e.Add, w.files[key])
	}
	_, err := w.u.Update(t.Context(), func(m *Change) error {
		return foldEdits(m.Manifest, AppliedEdit{Position: m.Floor.Position, Offset: m.Floor.Offset, Edit: e})
	})
	if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), e.Add[0].Key+", which is in it already") {
		t.Errorf("%v", err)
	}
	w.compare("afterwards")
}

// file returns a new file, whose name rises with time as UUIDs of version 7 do.
func (w *tableModel) file(random bool) manifest.File {
	id, err := uuid.NewV7()
	if random {
		id, err = uuid.NewRandom()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	f := manifest.File{Key: layout.FileKey(w.m.Floor.Position.Epoch, id.String(), ".sst"), Size: int64(w.rng.IntN(1 << 20)), Records: w.rng.Uint64N(100)}
	if w.meta > 0 {
		b := make([]byte, w.meta)
		for i := range b {
			b[i] = byte(w.rng.IntN(128))
		}
		f.Meta = map[string]string{"m": string(b)}
	}
	return f
}

// commit folds an edit.
func (w *tableModel) commit(e *manifest.Edit) {
	w.t.Helper()
	for _, f := range e.Add {
		w.files[f.Key] = f
	}
	for _, key := range e.Remove {
		delete(w.files, key)
		w.gone++
	}
	w.update(func(m *Change) error {
		return foldEdits(m.Manifest, AppliedEdit{Position: m.Floor.Position, Offset: m.Floor.Offset, Edit: e})
	})
}

// grow adds files, some thousands in an edit.
func (w *tableModel) grow(n int, random bool) {
	w.t.Helper()
	for n > 0 {
		e := &manifest.Edit{}
		for range min(n, 5000) {
			e.Add = append(e.Add, w.file(random))
		}
		n -= len(e.Add)
		w.commit(e)
	}
}

func (w *tableModel) keys() []string { return slices.Sorted(maps.Keys(w.files)) }

// compare reads the table with a log that remembers nothing.
func (w *tableModel) compare(when string) {
	w.t.Helper()
	l := With(w.l.st, w.l.format, &Options{Settle: quick})
	m, err := l.Newest(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	got := map[string]manifest.File{}
	last := ""
	for f, err := range l.Files(context.Background(), m) {
		if err != nil {
			w.t.Fatalf("%s: %v", when, err)
		}
		if f.Key <= last {
			w.t.Fatalf("%s: %s comes after %s", when, f.Key, last)
		}
		last, got[f.Key] = f.Key, f
	}
	same := func(a, b manifest.File) bool {
		return a.Size == b.Size && a.Records == b.Records && maps.Equal(a.Meta, b.Meta)
	}
	if !maps.EqualFunc(got, w.files, same) || m.Live() != len(w.files) {
		w.t.Fatalf("%s: %d files are live, %d by count, want %d", when, len(got), m.Live(), len(w.files))
	}
	// What was removed or replaced is on the list of what is to be deleted, and
	// nothing else; what is named is there.
	named, dropped := map[string]bool{}, map[string]bool{}
	for _, key := range l.Lists(m) {
		named[key] = true
	}
	files := 0
	for d, err := range l.Dropped(context.Background(), m) {
		if err != nil {
			w.t.Fatalf("%s: %v", when, err)
		}
		if _, live := w.files[d.Key]; live || named[d.Key] || dropped[d.Key] {
			w.t.Fatalf("%s: %s is dropped", when, d.Key)
		}
		dropped[d.Key] = true
		if _, _, _, ok := layout.ParseFileKey(d.Key); ok {
			files++
		}
	}
	if files != w.gone {
		w.t.Fatalf("%s: %d files are dropped, want %d", when, files, w.gone)
	}
	for info, err := range w.l.st.List(context.Background(), layout.ListPrefix, nil) {
		if err != nil {
			w.t.Fatal(err)
		}
		if !named[info.Key] && !dropped[info.Key] {
			w.t.Errorf("%s: %s is neither named nor dropped", when, info.Key)
		}
		delete(named, info.Key)
	}
	if len(named) > 0 {
		w.t.Errorf("%s: pages are missing: %v", when, named)
	}
}

// TestTable lets a table grow, shrink and change at random, in order and in disorder,
// and compares it with a map.
func TestTable(t *testing.T) {
	small := testFormat()
	small.Limits.Manifest = leastRoom + 2*5464 // what two cursors of 4096 take
	if err := layout.CheckLimits(small.Limits); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		f      manifest.Format
		random bool
		meta   int
		size   int
	}{
		"in order": {testFormat(), false, 0, test.Of(2500, 9000)}, "in disorder": {testFormat(), true, 0, test.Of(2500, 9000)},
		"small manifest, much meta": {small, true, 200, 1200},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTableModel(t, memstore.New(nil), tt.f)
			w.meta = tt.meta
			w.grow(tt.size, tt.random)
			w.compare("grown")
			for i := range 20 {
				e := &manifest.Edit{}
				for range w.rng.IntN(100) {
					e.Add = append(e.Add, w.file(tt.random))
				}
				keys := w.keys()
				at := w.rng.IntN(len(keys))
				for range w.rng.IntN(100) {
					if i%2 == 0 { // a run of files, or any
						at = (at + 1) % len(keys)
					} else {
						at = w.rng.IntN(len(keys))
					}
					if !slices.Contains(e.Remove, keys[at]) {
						e.Remove = append(e.Remove, keys[at])
					}
				}
				e.Properties = map[string]string{"round": keys[at]}
				w.commit(e)
				if w.m.Properties["round"] != keys[at] {
					t.Fatal("the properties are lost")
				}
				if i%10 == 9 {
					w.compare("changed")
				}
			}
			// To a tenth: the pages follow.
			for len(w.files) > tt.size/10 {
				keys := w.keys()
				w.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
				w.commit(remove(keys[:min(len(keys)/2, tt.size/10)]...))
			}
			w.compare("shrunk")
			entries := 0
			for _, p := range w.m.FilePages {
				entries += p.Count
			}
			if n := len(w.m.FilePages); n > 2+entries/fewEntries && tt.meta == 0 {
				t.Errorf("%d pages for %d files", n, entries)
			}
			w.commit(remove(w.keys()...))
			w.compare("empty")
			t.Logf("%d versions, %d pages at the end: %d of dropped", w.m.Version, len(w.l.Lists(w.m)), len(w.m.DroppedPages))
		})
	}
}
