package main

import (
	"bytes"
	"fmt"
	"log"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// TestStory: what the command tells is checked by the command itself.
func TestStory(t *testing.T) {
	var out bytes.Buffer
	if err := story(t.Context(), memstore.New(nil), 100, log.New(&out, "", 0)); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !strings.Contains(out.String(), "merged") || !strings.Contains(out.String(), "a reader sees 10000 rows") {
		t.Error(out.String())
	}
}

// TestParquetReads: a Parquet reader takes an open file as it is, with a request or two for
// each MiB.
func TestParquetReads(t *testing.T) {
	st := faultstore.New(memstore.New(nil), nil)
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := w.CreateFile(t.Context(), ".parquet", 0)
	if err != nil {
		t.Fatal(err)
	}
	const n = 400_000
	rows := make([]row, n)
	for i := range rows {
		rows[i] = row{int64(i), fmt.Sprintf("row %d of many %x", i, i*7919)}
	}
	if err := parquet.Write(f, rows, parquet.MaxRowsPerRowGroup(100_000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, err := reader.Open(t.Context(), st, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Snapshot(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	for f, err := range s.Files(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		file, err := s.Open(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		st.ResetCounts()
		got, err := readAll(file)
		if err != nil || len(got) != n || got[n-1] != rows[n-1] {
			t.Fatalf("%d rows, %v", len(got), err)
		}
		requests := st.Counts().Of(faultstore.Get, "file/")
		t.Logf("%d MiB, %d requests", file.Size()>>20, requests)
		if most := 20 + 2*int(file.Size()>>20); requests > most {
			t.Errorf("%d requests for %d MiB, want %d at most", requests, file.Size()>>20, most)
		}
	}
}
