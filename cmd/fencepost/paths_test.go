package main

import (
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	filesverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/files"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// TestFilesForms: what files prints can be opened as it is.
func TestFilesForms(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "it's a log")
	url := "file://" + strings.ReplaceAll(dir, " ", "%20")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	keys := table(t, newLog(t, url))
	paths := []string{filepath.Join(dir, keys[0]), filepath.Join(dir, keys[1])}
	got := must(t, "", "files", "--format", "paths", url)
	if got != strings.Join(paths, "\n")+"\n" {
		t.Errorf("paths: %q", got)
	}
	for line := range strings.Lines(got) {
		if body, err := os.ReadFile(strings.TrimSuffix(line, "\n")); string(body) != "rows" || err != nil {
			t.Errorf("%q: %q, %v", line, body, err)
		}
	}
	if got := must(t, "", "files", "-0", "--format", "paths", url); got != strings.Join(paths, "\x00")+"\x00" {
		t.Errorf("with -0: %q", got)
	}
	if got := must(t, "", "files", "--format", "urls", url); !strings.HasPrefix(got, "file:///") || !strings.Contains(got, "it%27s%20a%20log/"+keys[0]+"\n") && !strings.Contains(got, "it's%20a%20log/"+keys[0]+"\n") {
		t.Errorf("urls: %q", got)
	}
	quoted := strings.ReplaceAll("read_parquet(['"+paths[0]+"',\n'"+paths[1]+"'], hive_partitioning=false)\n", "it's", "it''s")
	if got := must(t, "", "files", "--format", "duckdb", url); got != quoted {
		t.Errorf("duckdb: %s, want %s", got, quoted)
	}
	doc := parsed[filesverb.TableDoc](t, "files", "--json", url)
	if len(doc.Files) != 2 || !strings.HasPrefix(doc.Files[0].URL, "file:///") || doc.Files[0].Key != keys[0] {
		t.Errorf("%+v", doc.Files)
	}
	empty := newLog(t, memURL(t))
	if got := must(t, "", "files", "--format", "paths", empty); got != "" {
		t.Errorf("of an empty table: %q", got)
	}
	if r := run(t, "", "files", "--format", "duckdb", empty); r.status != 1 || !strings.Contains(r.err, "has no files") {
		t.Errorf("%d, %s", r.status, r.err)
	}
}

// TestFilesOfOddFolder: DuckDB takes neither the name of a folder for a column nor its characters for a pattern.
func TestFilesOfOddFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "day=z", "[ab]*?")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	url := "file://" + (&neturl.URL{Path: dir}).EscapedPath()
	table(t, newLog(t, url))
	got := must(t, "", "files", "--format", "duckdb", url)
	if !strings.Contains(got, "/day=z/[[]ab][*][?]/file/") || !strings.HasSuffix(got, "], hive_partitioning=false)\n") {
		t.Errorf("%s", got)
	}
}

// TestFilesFormsApart: files in a second store are named where they are.
func TestFilesFormsApart(t *testing.T) {
	url, files, name := apart(t)
	want := strings.TrimPrefix(files, "mem://")
	if got := must(t, "", "files", "--format", "paths", url); got != "mem://"+want+"/"+name+"\n" {
		t.Errorf("%q, want %s/%s", got, files, name)
	}
	moved := memURL(t) + "/moved"
	if got := must(t, "", "files", "--format", "paths", "--files", moved, url); got != moved+"/"+name+"\n" {
		t.Errorf("%q", got)
	}
}

// TestFilesUsage: what makes no sense is refused before anything is read.
func TestFilesUsage(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"--format csv", "--format is one of table, duckdb, paths, urls"},
		{"-0", "-0 goes with --format"},
		{"-0 --format duckdb", "-0 goes with --format"},
		{"--json --format paths", "exclude each other"},
		{"--ttl 1h", "--ttl goes with --pin"},
	} {
		r := run(t, "", append(append([]string{"files"}, strings.Fields(c.args)...), "mem://nothing")...)
		if r.status != 64 || !strings.Contains(r.err, c.says) {
			t.Errorf("%s: %d, %s", c.args, r.status, r.err)
		}
	}
}

// TestFilesPin: an engine that reads slowly finds all files, although an edit has removed them
// and the log was compacted, until the pin is removed.
func TestFilesPin(t *testing.T) {
	url := memURL(t)
	must(t, "", "init", "--grace", "0", url)
	table(t, url)
	list := strings.Fields(must(t, "", "files", "--format", "paths", "--pin", "engine", url))
	st := openStore(t, url)
	there := func() (n int) {
		for _, path := range list {
			if _, err := st.Get(t.Context(), strings.TrimPrefix(path, url+"/"), nil); err == nil {
				n++
			}
		}
		return n
	}
	w, err := writer.Open(t.Context(), st, fence.NewToken(2), nil)
	if err != nil {
		t.Fatal(err)
	}
	doc := parsed[filesverb.TableDoc](t, "files", "--json", url)
	if err := w.CommitFiles(t.Context(), manifest.Edit{Remove: []string{doc.Files[0].Key, doc.Files[1].Key}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	compact := func() {
		for range 3 {
			must(t, "x\n", "append", url)
			must(t, "", "compact", url)
		}
	}
	if compact(); len(list) != 2 || there() != 2 {
		t.Errorf("%d of %d pinned files are there", there(), len(list))
	}
	must(t, "", "unpin", "engine", url)
	if compact(); there() != 0 {
		t.Errorf("%d files stay without the pin", there())
	}
}
