package verify_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/verify"
	"github.com/fencepost/fencepost/writer"
)

// table is a log with files: n of them committed by the leader of an epoch, and the
// first of those that are live removed.
func table(t testing.TB, st store.Store, epoch uint64, n int, remove ...string) (keys []string) {
	t.Helper()
	w, err := writer.Open(t.Context(), st, fence.NewToken(epoch), &writer.Options{Init: &manifest.InitOptions{Grace: -1, Probe: quickProbe}})
	if err != nil {
		t.Fatal(err)
	}
	e := manifest.Edit{Remove: remove}
	for range n {
		f, err := w.CreateFile(t.Context(), ".sst")
		if err == nil {
			_, err = f.Write([]byte("rows"))
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		e.Add = append(e.Add, f.File())
		keys = append(keys, f.File().Key)
	}
	if err := w.CommitFiles(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(t.Context(), [][]byte{[]byte("record")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return keys
}

// tables is a log with a folded and an unfolded part, and its live files.
func tables(t testing.TB) (*memstore.Store, []string) {
	t.Helper()
	st := memstore.New(nil)
	first := table(t, st, 1, 3)
	compact(t, st, 1)
	second := table(t, st, 2, 2, first[0])
	return st, append(first[1:], second...)
}

func TestWholeTable(t *testing.T) {
	st, live := tables(t)
	log, err := state.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Pin(t.Context(), &state.PinOptions{Name: "backup"}); err != nil {
		t.Fatal(err)
	}
	r := run(t, st)
	if !r.OK() || len(r.Notes) > 0 || r.Files != len(live) || r.Edits != 1 || r.Pins != 1 || r.Objects[verify.KindUnknown].Objects > 0 {
		t.Errorf("%d files, %d edits, %d pins: %v, %v", r.Files, r.Edits, r.Pins, r.Problems, r.Notes)
	}
	compact(t, st, 2)
	if r := run(t, st); !r.OK() || r.Files != len(live) || r.Edits != 0 {
		t.Errorf("%d files, %d edits: %v", r.Files, r.Edits, r.Problems)
	}
}

// Damage to a table is told with the key, whether its edits are folded or not.
func TestTableDamage(t *testing.T) {
	for _, folded := range []bool{false, true} {
		for name, c := range map[string]struct {
			harm func(st store.Store, live []string) error
			says string
			key  func(live []string) string
		}{
			"file missing":     {func(st store.Store, live []string) error { return st.Delete(context.Background(), live[1]) }, "missing", func(live []string) string { return live[1] }},
			"new file missing": {func(st store.Store, live []string) error { return st.Delete(context.Background(), live[3]) }, "missing", func(live []string) string { return live[3] }},
			"file cut": {func(st store.Store, live []string) error {
				_, err := st.Put(context.Background(), live[0], []byte("row"), nil)
				return err
			}, "3 bytes, the table says 4", func(live []string) string { return live[0] }},
			"pin damaged": {func(st store.Store, _ []string) error {
				_, err := st.Put(context.Background(), layout.PinKey("00000000-0000-4000-8000-000000000001"), []byte("junk"), nil)
				return err
			}, "nothing is pruned until it can", func([]string) string { return layout.PinPrefix }},
		} {
			st, live := tables(t)
			if folded {
				compact(t, st, 2)
			}
			if err := c.harm(st, live); err != nil {
				t.Fatal(err)
			}
			r := run(t, st)
			if len(r.Problems) != 1 || r.Problems[0].Key != c.key(live) || !strings.Contains(r.Problems[0].What, c.says) {
				t.Errorf("%s, folded %t: %v", name, folded, r.Problems)
			}
		}
	}
}

// An edit that no writer commits is damage: nobody could fold it.
func TestBadEdit(t *testing.T) {
	for name, doc := range map[string][]byte{"junk": []byte("junk"), "a removal of what is not live": []byte(`{"remove":["file/00000000000000000001/00000000-0000-7000-8000-000000000001.sst"]}`)} {
		st, _ := tables(t)
		m := newest(t, st)
		at := *m.Hint
		var b frame.Builder
		b.SetEdit(doc)
		h := frame.Header{Log: m.Log, Nonce: fence.ID{7}, Position: at.Position, Offset: at.Offset, Prev: at.Prev, Time: time.Unix(1, 0)}
		if _, err := st.Put(t.Context(), layout.DataKey(at.Position), b.Finish(&h, frame.Plain), &store.PutOptions{If: store.IfAbsent()}); err != nil {
			t.Fatal(err)
		}
		r := run(t, st)
		if len(r.Problems) != 1 || r.Problems[0].Key != layout.DataKey(at.Position) || !strings.Contains(r.Problems[0].What, "the edit") {
			t.Errorf("%s: %v", name, r.Problems)
		}
	}
}

// T36: a lifecycle rule that deletes objects by age cannot be seen, but what it has
// done can: seals, manifests and segments are missing, and the remedy names such
// rules.
func TestT36_LifecycleRule(t *testing.T) {
	for _, prefix := range []string{"data/", "segment/", "file/", "manifest/"} {
		st, _ := tables(t)
		compact(t, st, 2)
		n := 0
		for info, err := range st.List(t.Context(), prefix, nil) {
			if err != nil {
				t.Fatal(err)
			}
			// The newest manifest is too young.
			if info.Key == layout.ManifestKey(newest(t, st).Version) {
				continue
			}
			if err := st.Delete(t.Context(), info.Key); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if n == 0 && prefix == "manifest/" {
			continue // there is only that one
		}
		r, err := verify.Run(t.Context(), st, nil)
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
