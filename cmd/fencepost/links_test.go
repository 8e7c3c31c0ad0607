package main

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLinkInBackup: a stranger's backup has a symbolic link where the store's folder should be. No verb
// follows it, and each says what it is.
func TestLinkInBackup(t *testing.T) {
	log, backup := fileURL(t), fileURL(t)
	must(t, "", "init", "--grace", "0", log)
	must(t, "a\nb\n", "append", log)
	must(t, "", "backup", log, backup)
	u, err := url.Parse(backup)
	if err != nil {
		t.Fatal(err)
	}
	victim, link := t.TempDir(), filepath.Join(u.Path, ".fencepost")
	thesis := filepath.Join(victim, "tmp", "thesis")
	if err := errors.Join(os.Mkdir(filepath.Dir(thesis), 0o755), os.WriteFile(thesis, nil, 0o644), os.RemoveAll(link), os.Symlink(victim, link)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"restore", backup, fileURL(t)}, {"backup", log, backup}, {"status", backup}, {"verify", backup}, {"cat", backup}} {
		if r := run(t, "", args...); r.status == 0 || !strings.Contains(r.err, link+" is a symbolic link") {
			t.Errorf("%s: %+v", args[0], r)
		}
	}
	if entries, err := os.ReadDir(victim); err != nil || len(entries) != 1 {
		t.Errorf("in the victim's directory are %v, %v", entries, err)
	}
	if _, err := os.Stat(thesis); err != nil {
		t.Error(err)
	}
}
