package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// added is a file that the newest version of a Delta table names.
type added struct {
	Path       string             `json:"path"`
	Values     map[string]*string `json:"partitionValues"`
	DataChange bool               `json:"dataChange"`
}

// active reads a Delta table without package delta.
func active(t *testing.T, table store.Store, versions int64) map[string]added {
	t.Helper()
	all := map[string]added{}
	for v := range versions {
		body, _, err := store.Read(t.Context(), table, fmt.Sprintf("_delta_log/%020d.json", v), &store.ReadOptions{Limit: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			var a struct {
				Add    *added
				Remove *struct{ Path string }
			}
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			if a.Add != nil {
				all[a.Add.Path] = *a.Add
			}
			if a.Remove != nil {
				delete(all, a.Remove.Path)
			}
		}
	}
	return all
}

// TestPartitionsStayApart: small files of a table that is published by partitions are merged within each
// partition, and the new file keeps its value.
func TestPartitionsStayApart(t *testing.T) {
	st := memstore.New(nil)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close(t.Context()) }()
	table, source, err := delta.Beside(st)
	if err != nil {
		t.Fatal(err)
	}
	p, err := delta.Open(t.Context(), table, []delta.Source{source}, &delta.Options{Partition: []delta.Column{{Name: "day", Type: "integer"}}})
	if err != nil {
		t.Fatal(err)
	}
	publish := func() map[string]added {
		t.Helper()
		r, err := p.Publish(t.Context())
		if err == nil {
			err = r.Err()
		}
		if err != nil {
			t.Fatal(err)
		}
		return active(t, table, r.Version+1)
	}
	// A row belongs to the day of its remainder. The third partition is null.
	day := func(r *row) map[string]string {
		if r.N%3 == 2 {
			return nil
		}
		return map[string]string{"day": fmt.Sprint(r.N % 3)}
	}
	rows, err := delta.NewWriter(t.Context(), w, &delta.WriterOptions[row]{Partition: day})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	const n = 30
	for i := range int64(n) {
		err := rows.Write(t.Context(), []row{{i, "x"}})
		if err == nil {
			err = rows.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if files := publish(); len(files) != n {
		t.Fatalf("%d files before", len(files))
	}
	r, err := reader.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := rewrite.New(w, r, merge, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	files := publish()
	s, err := r.Snapshot(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	seen, days := map[int64]bool{}, map[string]int{}
	for f, err := range s.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		in, ok := files[strings.TrimPrefix(f.Key, "file/")]
		if !ok || in.DataChange {
			t.Errorf("%s is in the table: %v; its rows are called new: %v", f.Key, ok, in.DataChange)
		}
		value := ""
		if v := in.Values["day"]; v != nil {
			value = *v
		}
		days[value]++
		data, err := s.Open(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		all, err := readAll(data)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			if want := day(&r)["day"]; want != value || seen[r.N] {
				t.Errorf("row %d is of day %q, and in a file of day %q; seen before: %v", r.N, want, value, seen[r.N])
			}
			seen[r.N] = true
		}
	}
	if len(seen) != n || len(files) != 3 || len(days) != 3 {
		t.Errorf("%d rows of %d; %d files; files by day: %v", len(seen), n, len(files), days)
	}
}
