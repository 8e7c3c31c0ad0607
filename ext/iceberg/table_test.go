package iceberg_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/iceberg"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// bare is a table without a publisher.
type bare struct {
	delta.Table
	s      delta.State
	schema *delta.Schema
}

func open(t *testing.T, root store.Store) *bare {
	t.Helper()
	of, err := iceberg.Format(location).Open(delta.Place{Root: root, Clock: clock.Go(), Foreign: func(key, what string) { t.Error(key, what) }, Failed: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := of.Load(t.Context(), nil, false)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := delta.ParseSchema(`{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}`)
	if err != nil {
		t.Fatal(err)
	}
	return &bare{of, s, schema}
}

func (b *bare) create(t *testing.T) bool {
	t.Helper()
	ok, err := b.Create(t.Context(), b.s, &delta.Change{Operation: "create", Meta: &delta.Meta{ID: "9c12d441-03fe-4693-9a96-a0705ddf69c1", Schema: b.schema, Retention: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

func (b *bare) add(log byte, path string) *delta.Change {
	return &delta.Change{Operation: "publish", Parts: []delta.Part{{Log: fence.ID{log}, Edits: 1, Add: []delta.Added{
		{Path: path, File: manifest.File{Size: 1000}, Footer: &delta.Footer{Schema: b.schema, Rows: 10}},
	}}}}
}

// TestCreateOnce: of two that create a version, one does.
//
// guard:iceberg-create. Without this check: two publishers of different logs create the same version; the second overwrites the first, whose edits were
// reported as published.
//
// guard:iceberg-path-once. Without this check: the copy of a log, which has another id, adds the files that the first has added; each row is
// there twice.
func TestCreateOnce(t *testing.T) {
	root := memstore.New(nil)
	a, b := open(t, root), open(t, root)
	if !a.create(t) || b.create(t) {
		t.Error("a version was created twice, or never")
	}
	b = open(t, root)
	for i, of := range []*bare{a, b} {
		if ok, err := of.Create(t.Context(), of.s, of.add(byte(1+i), "x.parquet")); err != nil || ok != (i == 0) {
			t.Errorf("publisher %d: %v, %v", i, ok, err)
		}
	}
	b = open(t, root)
	if log, active := b.s.Owner("x.parquet"); !active || log != (fence.ID{1}) || b.s.Version() != 2 {
		t.Errorf("version %d, %v, %v", b.s.Version(), log, active)
	}
	if _, err := b.Create(t.Context(), b.s, b.add(2, "x.parquet")); err == nil || !strings.Contains(err.Error(), "two logs write below one name") {
		t.Errorf("a file of another log: %v", err)
	}
}

// TestVersionGone: somebody deletes the newest version, and perhaps another publisher creates its number again.
//
// guard:iceberg-newest-gone. Without this check: somebody deletes the newest version; a publisher begins at the one before, creates that
// number again, and engines that have read the first see rows vanish.
//
// guard:iceberg-same. Without this check: another publisher, which began at the version before, creates the number again with other files; the
// first goes on from what it has created, and the files of the other are in the table no more.
func TestVersionGone(t *testing.T) {
	root := memstore.New(nil)
	a := open(t, root)
	a.create(t)
	b := open(t, root)
	if ok, err := a.Create(t.Context(), a.s, a.add(1, "a.parquet")); err != nil || !ok {
		t.Fatal(ok, err)
	}
	if err := root.Delete(t.Context(), "metadata/v1000000002.metadata.json"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Load(t.Context(), a.s, false); !errors.Is(err, delta.ErrDamaged) || !strings.Contains(err.Error(), "v1000000002") {
		t.Errorf("the newest version is gone: %v", err)
	}
	if ok, err := b.Create(t.Context(), b.s, b.add(2, "b.parquet")); err != nil || !ok {
		t.Fatal(ok, err)
	}
	s, err := a.Load(t.Context(), a.s, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, active := s.Owner("b.parquet"); !active || s.Len() != 1 {
		t.Errorf("the version that replaced another is not read: %d files", s.Len())
	}
}
