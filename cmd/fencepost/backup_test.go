package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/backup"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// TestBackup: a log with a table is backed up while its life goes on, brought up to date, and
// restored. The restored log has what the backup had, and goes on.
func TestBackup(t *testing.T) {
	url, to, restored := freshURL(t), freshURL(t), freshURL(t)
	fixture.Put(t, openStore(t, url), layout.FormatKey, document.Sum(layout.FormatKey, []byte(fixture.JSON(t, logtest.WithGrace(10*time.Minute)))))
	files := table(t, url)
	must(t, "first\nsecond\n", "append", url)
	must(t, "", "compact", url)
	must(t, "third\n", "append", url)
	before := contents(t, url)
	out := must(t, "", "backup", url, to)
	if !strings.HasPrefix(out, "backed up version ") || !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	must(t, "fourth\n", "append", url)
	r := parsed[backup.Report](t, "backup", "--json", url, to)
	if !r.Verified || r.Present == 0 || r.Present == r.Objects {
		t.Errorf("%+v", r)
	}
	if out := must(t, "", "pins", url); out != "" {
		t.Errorf("left are the pins %s", out)
	}
	must(t, "", "compact", "--retain-records", "1", url)

	out = must(t, "", "restore", to, restored)
	if !strings.HasPrefix(out, "restored version ") || !strings.Contains(out, "the next leader has epoch 1048") {
		t.Error(out)
	}
	if got := contents(t, restored); got != before+"fourth\n" {
		t.Errorf("%q, want %q", got, before+"fourth\n")
	}
	if out := must(t, "", "restore", to, restored); !strings.HasPrefix(out, "nothing to do: ") || !strings.Contains(out, "nothing is wrong") {
		t.Errorf("the same restore again: %s", out)
	}
	if r := parsed[backup.Report](t, "restore", "--json", to, restored); !r.Already || !r.Verified || r.Present != r.Objects {
		t.Errorf("the same restore again: %+v", r)
	}
	var live []string
	for line := range strings.Lines(must(t, "", "files", restored)) {
		key, _, _ := strings.Cut(line, "\t")
		live = append(live, key)
	}
	if !slices.Equal(live, files) {
		t.Errorf("live are %q, want %q", live, files)
	}
	must(t, "after the recovery\n", "append", restored)
	must(t, "", "compact", restored)
	if got := contents(t, restored); got != before+"fourth\nafter the recovery\n" {
		t.Errorf("%q", got)
	}
	if out := must(t, "", "verify", "--copy", restored); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	if out := must(t, "", "verify", url); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	// Not over a log that is in use, with words on what to do.
	if r := run(t, "", "restore", to, restored); r.status != 1 || !strings.Contains(r.err, "`fencepost verify` checks it") || strings.Contains(r.err, "before it ended") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if r := run(t, "", "backup", url, restored); r.status != 1 || !strings.Contains(r.err, "give a place of its own") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// TestInterruptedRestore: whoever meets what a restore has left is told to run it again.
func TestInterruptedRestore(t *testing.T) {
	url, to, restored := freshURL(t), freshURL(t), freshURL(t)
	must(t, "first\n", "append", url)
	must(t, "", "backup", url, to)
	must(t, "", "restore", to, restored)
	if err := store.DeleteAll(t.Context(), openStore(t, restored), []string{layout.FormatKey}, nil); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"status", "verify", "cat", "append"} {
		if r := run(t, "x\n", verb, restored); r.status == 0 || !strings.Contains(r.out+r.err, "restore` was interrupted here, run it again") {
			t.Errorf("%s: status %d: %s%s", verb, r.status, r.out, r.err)
		}
	}
	must(t, "", "restore", to, restored)
	if got := contents(t, restored); got != "first\n" {
		t.Errorf("%q", got)
	}
}

// TestRestoreOverAnotherLog refuses before it copies, says what stands there, and changes nothing.
func TestRestoreOverAnotherLog(t *testing.T) {
	url, to, other := freshURL(t), freshURL(t), freshURL(t)
	for _, u := range []string{url, other} {
		must(t, "of "+u+"\n", "append", u)
		must(t, "", "compact", u)
	}
	must(t, "", "backup", url, to)
	before := contents(t, other)
	r := run(t, "", "restore", to, other)
	if r.status != 1 || !strings.Contains(r.err, "another log") || !strings.Contains(r.err, "nothing was copied; restore to an empty place") || strings.Contains(r.err, "before it ended") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if got := contents(t, other); got != before {
		t.Errorf("%q, want %q", got, before)
	}

	// Nor over a part of one: an object of another size is found before the first copy.
	half := freshURL(t)
	key := layout.ManifestKey(parsed[backup.Report](t, "backup", "--json", url, to).Version)
	fixture.Put(t, openStore(t, half), key, []byte("of another log"))
	if r := run(t, "", "restore", to, half); r.status != 1 || !strings.Contains(r.err, key+" has 14 bytes") || !strings.Contains(r.err, "nothing was copied") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	n := 0
	for _, err := range openStore(t, half).List(t.Context(), "", nil) {
		if n++; err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("%d objects stand where the restore was refused, want 1", n)
	}
}

// TestBackupEndsEarly: a backup that ends with an error says how much it has copied. It does not say that the same command goes on:
// that depends on the error, which says what to do.
func TestBackupEndsEarly(t *testing.T) {
	url := freshURL(t)
	must(t, "first\n", "append", url)
	must(t, "", "compact", url)
	must(t, "second\n", "append", url)
	st := openStore(t, url)
	for info, err := range st.List(t.Context(), layout.SegmentPrefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, st, info.Key, []byte("cut"))
	}
	if r := run(t, "", "backup", url, freshURL(t)); r.status != 65 || !strings.Contains(r.err, "before it ended") || strings.Contains(r.err, "goes on") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// TestBackupOfAnEmptyLog says what is missing.
func TestBackupOfAnEmptyLog(t *testing.T) {
	url := newLog(t, freshURL(t))
	if r := run(t, "", "backup", url, freshURL(t)); r.status != 1 || !strings.Contains(r.err, "no manifest yet") || !strings.Contains(r.err, "fencepost compact") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// TestRepairFromBackup: what a log has lost comes back from its backup, and nothing else is asked for.
func TestRepairFromBackup(t *testing.T) {
	url, to := freshURL(t), freshURL(t)
	must(t, "first\nsecond\n", "append", url)
	must(t, "", "compact", url)
	must(t, "third\n", "append", url)
	must(t, "", "backup", url, to)
	before, st := contents(t, url), openStore(t, url)
	for info, err := range st.List(t.Context(), layout.SegmentPrefix, nil) {
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, st, info.Key, []byte("cut"))
	}
	if r := run(t, "", "verify", "--repair", url); r.status != 65 {
		t.Errorf("status %d: %s", r.status, r.out)
	}
	if r := run(t, "", "verify", "--from", to, url); r.status != 64 || !strings.Contains(r.err, "--from goes with --repair") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if r := run(t, "", "verify", "--repair", "--from", url, url); r.status != 1 || !strings.Contains(r.err, "not a backup") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if r := run(t, "", "verify", "--repair", "--dry-run", "--from", to, url); r.status != 65 || !strings.Contains(r.out, "(`fencepost verify --repair --from` can copy it from ") {
		t.Errorf("status %d: %s", r.status, r.out)
	}
	if out := must(t, "", "verify", "--repair", "--from", to, url); !strings.Contains(out, "(repaired: copy it from ") {
		t.Error(out)
	}
	if out := must(t, "", "verify", url); !strings.Contains(out, "nothing is wrong") || contents(t, url) != before {
		t.Error(out)
	}
}
