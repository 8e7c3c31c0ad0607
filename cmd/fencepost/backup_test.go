package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/document"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/testkit/fixture"
	"github.com/fencepost/fencepost/internal/testkit/logtest"
	"github.com/fencepost/fencepost/store"
)

// copied copies objects below a prefix, all or those that are wanted.
func copied(t testing.TB, from, to store.Store, prefix string, want func(key string) bool) {
	t.Helper()
	for info, err := range store.ListAll(t.Context(), from, prefix, nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		if want != nil && !want(info.Key) {
			continue
		}
		body, _, err := store.ReadAll(t.Context(), from, info.Key, 1<<30, nil)
		if err == nil {
			_, err = to.Put(t.Context(), info.Key, body, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// last returns the greatest key below a prefix.
func last(t testing.TB, st store.Store, prefix string) (key string) {
	t.Helper()
	for info, err := range store.ListAll(t.Context(), st, prefix, nil, nil) {
		if err != nil {
			t.Fatal(err)
		}
		key = max(key, info.Key)
	}
	return key
}

// TestBackup does what docs/operations.md says under "Backup and recovery", step by
// step, while leaders append, and change, and a compactor folds, merges, gives up and
// prunes between any two steps.
func TestBackup(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{
		"1. `fencepost compact URL`", "`fencepost pin --name backup-2026-11 URL`", "2. Within the grace period, copy `data/`, and then the newest lock of `lock/` and of `compactor-lock/`",
		"3. Copy `format.json`, `manifest/<version>.json` of that version, `segment/`, `list/`", "`fencepost files --at VERSION URL`",
		"4. `fencepost verify --copy` on the copy", "5. `fencepost unpin backup-2026-11 URL`",
	} {
		if !strings.Contains(string(page), step) {
			t.Errorf("the page does not say %q any more: mend this test", step)
		}
	}
	url, to := freshURL(t), freshURL(t)
	st, backup := openStore(t, url), openStore(t, to)
	fixture.Put(t, st, layout.FormatKey, document.Sum(layout.FormatKey, []byte(fixture.JSON(t, logtest.WithGrace(10*time.Minute)))))
	files := table(t, url)
	n := 0
	life := func() {
		n++
		must(t, strings.Repeat("a line of some length\n", 10+n), "append", url)
		must(t, "", "compact", "--retain-records", "5", url)
	}
	must(t, "first\nsecond\n", "append", url)
	before := contents(t, url)

	must(t, "", "compact", url)
	pin := parsed[struct{ Version, First, End uint64 }](t, "pin", "--json", "--name", "backup-2026-11", url)
	life()
	copied(t, st, backup, layout.DataPrefix, nil)
	life()
	for _, prefix := range []string{"lock/", "compactor-lock/"} {
		newest := last(t, st, prefix)
		copied(t, st, backup, prefix, func(key string) bool { return key == newest })
	}
	life()
	copied(t, st, backup, "", func(key string) bool { return key == "format.json" || key == layout.ManifestKey(pin.Version) })
	life()
	copied(t, st, backup, "segment/", nil)
	copied(t, st, backup, "list/", nil)
	life()
	var live []string
	for line := range strings.Lines(must(t, "", "files", "--at", fmt.Sprint(pin.Version), url)) {
		key, _, _ := strings.Cut(line, "\t")
		live = append(live, key)
	}
	if !slices.Equal(live, files) {
		t.Errorf("live were %q, the version has %q", files, live)
	}
	copied(t, st, backup, "file/", func(key string) bool { return slices.Contains(live, key) })
	if r := run(t, "", "verify", "--copy", to); r.status != 0 || !strings.Contains(r.out, "nothing is wrong") {
		t.Errorf("status %d\n%s", r.status, r.out)
	}
	must(t, "", "unpin", "backup-2026-11", url)
	life()

	// The copy has what there was, and is a log that goes on.
	got := contents(t, to)
	if !strings.HasPrefix(got, before) || pin.First != 0 || pin.End == 0 {
		t.Errorf("the copy has %q, want %q; pinned were %+v", got, before, pin)
	}
	if out := must(t, "", "files", to); strings.Count(out, "\n") != len(files) {
		t.Errorf("files of the copy: %q", out)
	}
	must(t, "after the recovery\n", "append", "--validity", "1s", to)
	must(t, "", "compact", to)
	if again := contents(t, to); again != got+"after the recovery\n" {
		t.Errorf("then the copy has %q", again)
	}
	if out := must(t, "", "verify", "--copy", to); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	// Without --copy it says that versions are missing, which no compactor deletes yet.
	if r := run(t, "", "verify", to); r.status != 1 || !strings.Contains(r.out, "versions from this one on are missing") {
		t.Errorf("status %d\n%s", r.status, r.out)
	}
	if out := must(t, "", "verify", url); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
}
