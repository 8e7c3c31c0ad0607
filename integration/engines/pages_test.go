//go:build integration && unix

package engines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/pages"
)

// columns are what engines.py computes.
const columns = "count(*), min(id), max(id), sum(id), count(distinct id), sum(sum)"

// block returns the block of a page that has a text.
func block(t *testing.T, page, text string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	all, faults := pages.Parse(page, string(body))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	var found []string
	for _, b := range all {
		if strings.Contains(b.Text(), text) {
			found = append(found, b.Text())
		}
	}
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks with %q, want one", page, len(found), text)
	}
	return found[0]
}

// replaced replaces a text that must be there.
func replaced(t *testing.T, in, old, by string) string {
	t.Helper()
	if !strings.Contains(in, old) {
		t.Fatalf("%q is not in:\n%s", old, in)
	}
	return strings.ReplaceAll(in, old, by)
}

// pages runs what the pages of the documentation show with an engine. The table is the newest version.
func (w *world) pages(duckdb string, env []string) {
	w.Helper()
	newest, err := w.h.newest(w.Context())
	w.fatal(err)
	want := w.h.at(newest).content()
	python := replaced(w.T, block(w.T, "delta.md", "polars.read_delta"), "s3://bucket/sales/file", w.table)
	ran := 0
	for _, e := range w.engines {
		for line := range strings.Lines(python) {
			if !strings.HasPrefix(line, e.name+".") {
				continue
			}
			var rows int64
			w.fatal(e.ask(map[string]any{"do": "line", "text": strings.TrimSpace(line)}, &rows))
			if ran++; rows != want.Rows {
				w.Errorf("docs/delta.md: %s finds %d rows, want %d", line, rows, want.Rows)
			}
		}
	}
	if duckdb == "" {
		return // Spark alone is there
	}
	if lines := strings.Count(python, "\n"); ran != lines {
		w.Errorf("docs/delta.md has %d lines of Python, and %d were run", lines, ran)
	}

	dir := w.TempDir() // with the programs that the page calls
	build := exec.Command("go", "build", "-o", dir+"/", ".")
	build.Dir = "../../cmd/fencepost"
	if out, err := build.CombinedOutput(); err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	script, err := filepath.Abs("engines.py")
	w.fatal(err)
	shim := fmt.Sprintf("#!/bin/sh\nexec '%s' '%s' duckdb statement\n", duckdb, script)
	w.fatal(os.WriteFile(filepath.Join(dir, "duckdb"), []byte(shim), 0o700))
	text := block(w.T, "tables.md", "--format duckdb --pin report")
	text = replaced(w.T, replaced(w.T, text, "s3://bucket/orders", "'"+w.url+"'"), "count(*)", columns)
	cmd := exec.CommandContext(w.Context(), "bash", "-eo", "pipefail", "-c", text)
	cmd.Env = append(append(os.Environ(), env...), "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Stderr = w.Output()
	out, err := cmd.Output()
	w.fatal(err)
	var got content
	w.fatal(json.NewDecoder(bytes.NewReader(out)).Decode(&got)) // unpin prints something after it
	if got.String() != want.String() {
		w.Errorf("docs/tables.md: DuckDB reads %v by fencepost files, want %v", got, want)
	}
	w.Logf("DuckDB reads the files that fencepost files --format duckdb lists: %d rows; the Python of docs/delta.md finds as many", got.Rows)
}
