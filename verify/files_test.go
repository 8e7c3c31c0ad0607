package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/verify"
)

// table is a leadership that commits n files, removes some, and appends a record.
func table(l *logtest.Log, n int, remove ...string) (keys []string) {
	l.Helper()
	w := l.Open(nil)
	e := manifest.Edit{Remove: remove}
	for range n {
		f, err := w.CreateFile(context.Background(), ".sst", 0)
		if err == nil {
			_, err = f.Write([]byte("rows"))
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			l.Fatal(err)
		}
		e.Add = append(e.Add, f.File())
		keys = append(keys, f.File().Key)
	}
	if err := w.CommitFiles(context.Background(), e); err != nil {
		l.Fatal(err)
	}
	l.Append(w, "record")
	l.Close(w)
	return keys
}

// tables is a log with a folded and an unfolded part, and its live files.
func tables(t testing.TB) (*logtest.Log, []string) {
	t.Helper()
	l := newLog(t)
	first := table(l, 3)
	compact(l)
	second := table(l, 2, first[0])
	return l, append(first[1:], second...)
}

func TestWholeTable(t *testing.T) {
	l, live := tables(t)
	if _, err := l.State.Pin(t.Context(), &state.PinOptions{Name: "backup"}); err != nil {
		t.Fatal(err)
	}
	r := run(t, l.Mem)
	if !r.OK() || len(r.Notes) > 0 || r.Files != len(live) || r.Edits != 1 || r.Pins != 1 || r.Objects[layout.KindUnknown].Objects > 0 {
		t.Errorf("%d files, %d edits, %d pins: %v, %v", r.Files, r.Edits, r.Pins, r.Problems, r.Notes)
	}
	compact(l)
	if r := run(t, l.Mem); !r.OK() || r.Files != len(live) || r.Edits != 0 {
		t.Errorf("%d files, %d edits: %v", r.Files, r.Edits, r.Problems)
	}
}

// Damage to a table is reported with the key, whether its edits are folded or not.
func TestTableDamage(t *testing.T) {
	for _, folded := range []bool{false, true} {
		for name, c := range map[string]struct {
			harm func(l *logtest.Log, live []string) (key string)
			says string
		}{
			"file missing":     {func(l *logtest.Log, live []string) string { del(l, live[1]); return live[1] }, "missing"},
			"new file missing": {func(l *logtest.Log, live []string) string { del(l, live[3]); return live[3] }, "missing"},
			"file cut":         {func(l *logtest.Log, live []string) string { l.Put(live[0], []byte("row")); return live[0] }, "3 bytes, the table says 4"},
			"pin damaged": {func(l *logtest.Log, _ []string) string {
				l.Put(layout.PinKey("00000000-0000-4000-8000-000000000001"), []byte("junk"))
				return layout.PinKey("00000000-0000-4000-8000-000000000001")
			}, "nothing is pruned until it can"},
		} {
			l, live := tables(t)
			if folded {
				compact(l)
			}
			key := c.harm(l, live)
			r := run(t, l.Mem)
			if len(r.Problems) != 1 || r.Problems[0].Key != key || !strings.Contains(r.Problems[0].What, c.says) {
				t.Errorf("%s, folded %t: %v", name, folded, r.Problems)
			}
		}
	}
}

// An edit that no writer commits is damage: nobody could fold it.
func TestBadEdit(t *testing.T) {
	for name, doc := range map[string][]byte{"junk": []byte("junk"), "a removal of what is not live": []byte(`{"remove":["file/00000000000000000001/00000000-0000-7000-8000-000000000001.sst"]}`)} {
		l, _ := tables(t)
		at := *l.Newest().Hint
		var b frame.Builder
		b.SetEdit(doc)
		h := l.Header(at)
		l.Put(layout.DataKey(at.Position), b.Finish(&h, frame.Plain))
		r := run(t, l.Mem)
		if len(r.Problems) != 1 || r.Problems[0].Key != layout.DataKey(at.Position) || !strings.Contains(r.Problems[0].What, "such an edit") {
			t.Errorf("%s: %v", name, r.Problems)
		}
	}
}

// commitAnyway puts edits that no writer of ours commits after a log that is folded.
func commitAnyway(l *logtest.Log, edits ...manifest.Edit) {
	l.Helper()
	at := l.Newest().Floor
	for _, e := range edits {
		doc, err := state.EncodeEdit(&e)
		if err != nil {
			l.Fatal(err)
		}
		var b frame.Builder
		b.SetEdit(doc)
		h := l.Header(at)
		body := b.Finish(&h, frame.Plain)
		l.Put(layout.DataKey(at.Position), body)
		f, err := frame.Decode(body, l.Format.Limits)
		if err == nil {
			at, err = at.Next(l.Format.Log, f)
		}
		if err != nil {
			l.Fatal(err)
		}
	}
}

// A faulty writer adds files that are live in a page, and each of them is named, folded or not. If the
// second entry is removed again, the file is still live, and will be deleted.
func TestFileAddedAgain(t *testing.T) {
	l := logtest.New(t, logtest.WithGrace(time.Hour), nil)
	keys := table(l, 1300)
	compact(l)
	var again []manifest.File
	for f, err := range l.State.Files(t.Context(), l.Newest()) {
		if err != nil {
			t.Fatal(err)
		}
		again = append(again, f)
	}
	twice := []string{keys[0], keys[700]}
	add := manifest.Edit{Add: []manifest.File{again[0], again[700]}}
	for what, c := range map[string]struct {
		edits []manifest.Edit
		says  string
	}{
		"added again":             {[]manifest.Edit{add}, "twice"},
		"added again and removed": {[]manifest.Edit{add, {Remove: twice}}, "list of what a compactor deletes"},
	} {
		f := l.Fork(t, nil)
		commitAnyway(f, c.edits...)
		finds(t, f, what, c.says, twice...)
		compact(f)
		finds(t, f, what+", folded", c.says, twice...)
		r := run(t, f.Mem)
		if r.Files != len(keys) {
			t.Errorf("%s: %d files are live", what, r.Files)
		}
		for _, p := range r.Problems {
			if !strings.Contains(p.Remedy, "fencepost restore") {
				t.Errorf("%s: %v", what, p)
			}
		}
	}
	// Those that are removed from a page are no finding, also when a list of removed files has them.
	table(l, 2, keys[:600]...)
	finds(t, l, "removed", "")
	compact(l)
	finds(t, l, "removed, folded", "")
	table(l, 2, keys[600:1200]...)
	compact(l)
	finds(t, l, "pages written again", "")
}

// T36: a lifecycle rule that deletes objects by age cannot be seen, but what it has
// done can: seals, manifests and segments are missing, and the remedy names such
// rules.
func TestT36_LifecycleRule(t *testing.T) {
	for _, prefix := range []string{"data/", "segment/", "file/", "manifest/"} {
		l, _ := tables(t)
		compact(l)
		n := 0
		for _, key := range l.Keys(prefix) {
			if key == layout.ManifestKey(l.Newest().Version) {
				continue // it is too young
			}
			l.Remove(key)
			n++
		}
		if n == 0 && prefix == "manifest/" {
			continue // there is only that one
		}
		r, err := verify.Run(t.Context(), l.Mem, nil)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		if n == 0 || r.OK() {
			t.Errorf("%s: %d objects are gone, and nothing is wrong", prefix, n)
		}
		for _, p := range r.Problems {
			if !strings.Contains(p.Remedy, "lifecycle rules") {
				t.Errorf("%s: %v", prefix, p)
			}
		}
	}
}
