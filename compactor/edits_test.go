package compactor

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
)

// Edits become the table of the manifest, in their order, with those that come to
// nothing; files that are not live any more are deleted.
func TestFoldsEdits(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.watch(nil)
	w.Lead(2)
	a, b, c := w.file(), w.file(), w.file()
	w.commit([]string{a, b}, nil)
	w.commit([]string{c}, []string{a})
	w.commit(nil, []string{b})
	w.edit(&manifest.Edit{Properties: map[string]string{"schema": "1"}})
	w.Lead(1)
	r := w.compact(w.Faulty, nil)
	m := w.Newest()
	if r.Edits != 4 || m.Table.Edits != 4 || m.Table.Live() != 1 || m.Table.EditedAt != 2 || m.Table.Properties["schema"] != "1" {
		t.Errorf("%+v; the table is %+v", r, m.Table)
	}
	if r.Pruned["file"] != 2 || w.Has(a) || w.Has(b) || !w.Has(c) {
		t.Errorf("pruned %v", r.Pruned)
	}
	w.holds("at the end")
}

// A file that nobody committed stays as long as somebody could, and what is committed stays at any
// rate.
//
// guard:orphan-files. When an epoch is sealed and folded, the newest manifest has every edit of that
// epoch, and no edit of another epoch adds the file. Without this check: a leader uploads a file, and
// has not committed its edit yet; a compactor finds that the table does not have the file, and deletes
// it; the leader's edit adds the file to the table, and readers do not find it.
//
// guard:orphan-live. Without this check: an edit of epoch 1 adds file f to the table, and epoch 1 is
// sealed and folded; a compactor deletes file f as an orphan of epoch 1; readers of the table do not
// find it.
func TestOrphanFiles(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.watch(nil)
	w.Lead(1)
	lost, kept := w.file(), w.file() // epoch 1
	w.commit([]string{kept}, nil)
	late := w.file()
	w.compact(w.Faulty, nil)
	if !w.Has(lost) || !w.Has(late) {
		t.Fatal("the leader of their epoch may still commit them")
	}
	w.commit([]string{late}, nil)
	w.Lead(1)
	mine := w.file() // epoch 2
	r := w.compact(w.Faulty, nil)
	if w.Has(lost) || !w.Has(late) || !w.Has(mine) || r.Pruned["orphan"] != 1 {
		t.Errorf("pruned are %v, %q are left", r.Pruned, short(w.Keys("file/")))
	}
	w.holds("at the end")
}

// Many bytes of edits are published in several folds: they are not held together.
func TestFoldsManyEdits(t *testing.T) {
	w := newWorld(t, 0, nil)
	w.Lead(1)
	var all []string
	meta := strings.Repeat("x", manifest.MaxMeta-10)
	for range 6 {
		var e manifest.Edit
		for range 1000 {
			key := layout.FileKey(w.Epoch, uuid.NewString(), "")
			e.Add = append(e.Add, manifest.File{Key: key, Meta: map[string]string{"m": meta}})
			all = append(all, key)
		}
		w.edit(&e)
	}
	before := w.Newest().Roles[layout.Compactor].Update
	if r := w.compact(w.Mem, nil); r.Edits != 6 {
		t.Errorf("%+v", r)
	}
	m := w.Newest()
	// One to publish the epoch, and the prune's.
	if folds := m.Roles[layout.Compactor].Update - before; folds < 4 || m.Table.Live() != len(all) {
		t.Errorf("%d updates, %d files are live", folds, m.Table.Live())
	}
}

// An edit that no writer commits is damage: the fold stops before it, says which
// object it is, and nothing is deleted for it.
func TestBadEdits(t *testing.T) {
	id := uuid.NewString()
	for name, doc := range map[string]string{
		"junk":              "junk",
		"empty":             "{}",
		"unknown file":      `{"remove":["` + layout.FileKey(1, id, "") + `"]}`,
		"another epoch":     `{"add":[{"key":"` + layout.FileKey(7, id, "") + `","size":1}]}`,
		"no name of a file": `{"add":[{"key":"data/x","size":1}]}`,
	} {
		w := newWorld(t, 0, nil)
		w.Lead(3)
		kept := w.file()
		w.commit([]string{kept}, nil)
		p, _ := w.tail()
		w.editDoc([]byte(doc))
		before := w.Keys("")
		w.Token++
		r, err := w.once(w.Mem, w.Token, small())
		if !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), layout.DataKey(p.Position)) || !strings.Contains(err.Error(), "`fencepost verify`") {
			t.Errorf("%s: %v", name, err)
		}
		if m := w.Newest(); r.Folded > 0 || m.Floor.Offset != 0 {
			t.Errorf("%s: %+v, the floor is at %v", name, r, m.Floor)
		}
		for _, key := range before {
			if !w.Has(key) {
				t.Errorf("%s: %s is gone", name, key)
			}
		}
	}
}
