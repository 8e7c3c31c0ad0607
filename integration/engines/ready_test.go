//go:build integration && unix

package engines

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// madeRows is how many rows a file has that an engine makes.
const madeRows = 10

// TestFilesOfOthers: Parquet files that the libraries of other programs have written become part of a table: those
// of Polars, of DuckDB, and of delta-rs, which has the Parquet library of Arrow for Rust. Each engine reads
// all of them. They also have columns that the Writer's rows lack, with a decimal of 30 digits in bytes.
func TestFilesOfOthers(t *testing.T) {
	pythons := installed(t)
	if pythons["duckdb"] == "" {
		t.Skip("Spark alone is there, and it writes files by Java only")
	}
	p := newPlace(t, "dir")
	st, root := p.open(t, "ready")
	if _, err := manifest.Init(t.Context(), st, nil); err != nil {
		t.Fatal(err)
	}
	w, err := writer.Open(t.Context(), st, token(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close(t.Context())
	rows, err := delta.NewWriter(t.Context(), w, &delta.WriterOptions[row]{Table: root})
	if err != nil {
		t.Fatal(err)
	}
	engines := map[string]*engine{}
	all := span{}
	for _, name := range slices.Sorted(maps.Keys(pythons)) {
		e := start(t, name, pythons[name], p.env)
		if engines[name] = e; name == "spark" {
			continue
		}
		file := filepath.Join(t.TempDir(), name+".parquet")
		if err := e.ask(map[string]any{"do": "make", "file": file, "first": all.To}, new(any)); err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := rows.WriteParquet(t.Context(), bytes.NewReader(body), int64(len(body)), nil); err != nil {
			t.Fatalf("the file of %s: %v", e.version, err)
		}
		all.To += madeRows
	}
	if err := rows.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	pub, err := publisher(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	r, err := pub.Publish(t.Context())
	if err == nil {
		err = r.Err()
	}
	if err != nil || r.Files != 3 {
		t.Fatalf("%d files: %v", r.Files, err)
	}
	// The bounds of what others have written are used too.
	var where []filter
	var want [][]int64
	for _, id := range []int64{0, 9, 10, 19, all.To - 1} {
		where = append(where,
			filter{SQL: fmt.Sprintf("id = %d", id), Polars: fmt.Sprintf("c('id') == %d", id)},
			filter{SQL: fmt.Sprintf("name = 'order %d'", id), Polars: fmt.Sprintf("c('name') == 'order %d'", id)},
			filter{SQL: fmt.Sprintf("ts = cast('1970-01-01 00:00:00.%06d+00:00' as TIME)", id), Polars: fmt.Sprintf("c('ts') == at(%d)", id)},
			filter{SQL: fmt.Sprintf("price = cast('%d.25' as decimal(30,2))", 123456789012345678+id), Polars: fmt.Sprintf("c('price') == D('%d.25')", 123456789012345678+id)})
		for range 4 {
			want = append(want, []int64{id})
		}
	}
	for name, e := range engines {
		got, err := e.read(p.table("ready"), -1)
		if want := all.content(); err != nil || got.String() != want.String() {
			t.Errorf("%s reads %v, want %v: %v", name, got, want, err)
		}
		var seen []map[string]any
		if err := e.ask(map[string]any{"do": "rows", "table": p.table("ready")}, &seen); err != nil {
			t.Fatal(err)
		}
		for id, row := range seen {
			want := fmt.Sprintf("order %d, 1970-01-01T00:00:00.%06d, %d.25", id, id, 123456789012345678+id)
			if got := fmt.Sprintf("%v, %v, %v", row["name"], row["ts"], row["price"]); got != want {
				t.Errorf("%s reads row %d as %s, want %s", name, id, got, want)
			}
		}
		var found [][]int64
		if err := e.ask(map[string]any{"do": "ids", "table": p.table("ready"), "filters": where}, &found); err != nil {
			t.Fatal(err)
		}
		for i, f := range where {
			if !slices.Equal(found[i], want[i]) {
				t.Errorf("%s finds rows %v where %s, want %v", name, found[i], f.SQL, want[i])
			}
		}
		t.Logf("%s reads %d rows in 3 files that delta-rs, DuckDB and Polars have made", e.version, got.Rows)
	}
}
