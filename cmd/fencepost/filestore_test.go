package main

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// apart makes a log with a second store for its files, and a table with one file.
func apart(t *testing.T) (url, files, name string) {
	t.Helper()
	url, files = memURL(t)+"/log", memURL(t)+"/table"
	must(t, "", "init", "--files", files, "--grace", "0", url)
	w, err := writer.Open(t.Context(), openStore(t, url), fence.NewToken(1), &writer.Options{Files: openStore(t, files)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := w.CreateFile(t.Context(), ".parquet", 0)
	if err == nil {
		_, err = f.Write([]byte("rows"))
	}
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		err = w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}})
	}
	if err == nil {
		err = w.Close(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	format := w.Format()
	return url, files, format.FileName(f.Key())
}

// TestFilesStore: the verbs that use files want --files, and say so; the others go without.
func TestFilesStore(t *testing.T) {
	url, files, name := apart(t)
	for _, verb := range []string{"append", "compact", "verify"} {
		r := run(t, "line\n", verb, url)
		if r.status != 1 || !strings.Contains(r.err, "--files URL") || !strings.Contains(r.err, "keeps its files in another store") {
			t.Errorf("%s: %d, %s", verb, r.status, r.err)
		}
		must(t, "line\n", verb, "--files", files, url)
	}
	for _, verb := range []string{"cat", "files", "status", "pins"} {
		must(t, "", verb, url)
	}
	must(t, "", "compact", "--dry-run", "--files", files, url)
	if _, err := openStore(t, files).Get(t.Context(), name, nil); err != nil {
		t.Error(err)
	}
	if out := must(t, "", "status", "--objects", url); !strings.Contains(out, "not counted: they are in") {
		t.Error(out)
	}
	if out := must(t, "", "status", "--objects", "--files", files, url); !strings.Contains(out, "1 objects of this log, 4 B, in ") {
		t.Error(out)
	}
	if r := run(t, "", "status", "--files", files, url); r.status != 64 || !strings.Contains(r.err, "--files goes with --objects") {
		t.Errorf("%+v", r)
	}
	own := newLog(t, memURL(t)+"/own")
	for _, verb := range []string{"append", "compact", "verify", "init"} {
		if r := run(t, "line\n", verb, "--files", files, own); r.status != 1 || !strings.Contains(r.err, "leave out the option Files") {
			t.Errorf("%s: %d, %s", verb, r.status, r.err)
		}
	}
}

// TestBackupFiles: a log with a second store for its files is backed up into one place, and restored
// with a second store of its own, where it goes on.
func TestBackupFiles(t *testing.T) {
	url, files, name := apart(t)
	must(t, "line\n", "append", "--files", files, url)
	must(t, "", "compact", "--files", files, url)
	to, restored, second := memURL(t)+"/backup", memURL(t)+"/restored", memURL(t)+"/second"
	if r := run(t, "", "backup", url, to); r.status != 1 || !strings.Contains(r.err, "--files URL") {
		t.Errorf("backup: %d, %s", r.status, r.err)
	}
	// Among the files, a vacuum of the table would delete it.
	if r := run(t, "", "backup", "--files", files, url, files+"/backup"); r.status != 1 || !strings.Contains(r.err, "would delete the backup; give each a place of its own") {
		t.Errorf("backup: %d, %s", r.status, r.err)
	}
	if out := must(t, "", "backup", "--files", files, url, to); !strings.Contains(out, "with the files of the table, which are in "+openStore(t, files).Traits().Name) || !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	if out := must(t, "", "verify", "--copy", to); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	if r := run(t, "", "restore", to, restored); r.status != 1 || !strings.Contains(r.err, "--files URL") {
		t.Errorf("restore: %d, %s", r.status, r.err)
	}
	if r := run(t, "", "restore", "--files", files, to, restored); r.status != 1 || !strings.Contains(r.err, "has those of the same log") {
		t.Errorf("restore: %d, %s", r.status, r.err)
	}
	r := parsed[backup.Report](t, "restore", "--json", "--files", second, to, restored)
	if !r.Verified || r.Files != openStore(t, second).Traits().Name {
		t.Errorf("%+v", r)
	}
	if body, _, err := store.Read(t.Context(), openStore(t, second), name, &store.ReadOptions{Limit: 100}); string(body) != "rows" {
		t.Errorf("%q, %v", body, err)
	}
	must(t, "after\n", "append", "--files", second, restored)
	must(t, "", "compact", "--files", second, restored)
	if out := must(t, "", "verify", "--files", second, restored); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	if got, want := contents(t, restored), contents(t, url)+"after\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFilesMoved: after its mark was lost, or its files were moved, a log can be told.
func TestFilesMoved(t *testing.T) {
	url, files, name := apart(t)
	moved := openStore(t, memURL(t)+"/moved")
	body, _, err := store.Read(t.Context(), openStore(t, files), name, &store.ReadOptions{Limit: 100})
	if err == nil {
		_, err = moved.Put(t.Context(), name, body, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	to := memURL(t) + "/moved"
	r := run(t, "", "compact", "--files", to, url)
	if r.status != 1 || !strings.Contains(r.err, "has no "+layout.SharedDir) || !strings.Contains(r.err, "--files-moved") {
		t.Errorf("%d, %s", r.status, r.err)
	}
	if out := must(t, "", "init", "--files", to, "--files-moved", url); !strings.Contains(out, "are in mem://") {
		t.Error(out)
	}
	must(t, "", "compact", "--files", to, url)
	must(t, "", "verify", "--files", to, url)
	if m := parsed[map[string]string](t, "init", "--json", "--files", to, "--files-moved", url); !strings.HasPrefix(m["files"], "mem://") || m["store"] == "" {
		t.Errorf("%v", m)
	}
	if r := run(t, "", "init", "--files-moved", url); r.status != 64 || !strings.Contains(r.err, "goes with --files") {
		t.Errorf("%d, %s", r.status, r.err)
	}
}
