package main

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// guard:backup-read-only. No verb that writes works on a backup, each says what to do, and the backup can be brought up to date and restored after that. Verbs
// that read work on it.
func TestVerbsRefuseBackups(t *testing.T) {
	base := fileURL(t)
	log, bk, back := base+"/log", base+"/bk", base+"/back"
	must(t, "", "init", "--grace", "1s", log)
	must(t, "a\nb\n", "append", log)
	must(t, "", "compact", log)
	must(t, "", "backup", log, bk)
	before := must(t, "", "verify", "--copy", bk)
	for _, args := range [][]string{
		{"append", bk}, {"append", "--epoch", "9", bk}, {"compact", bk}, {"truncate", "--before", "1", bk}, {"init", bk}, {"exec", "--no-wait", bk, "--", "true"}, {"exec", "--group", "--partitions", "2", bk, "--", "true"},
		{"lock", "-n", bk, "job", "--", "true"}, {"append", "--protocol", "json", bk}, {"commit", bk, parquetFile(t, 1)},
		{"step-down", bk}, {"pin", "--name", "x", bk}, {"cat", "--consumer", "billing", bk}, {"publish", bk}, {"verify", "--repair", bk}, {"backup", bk, base + "/bk2"},
	} {
		if r := run(t, "c\n", args...); r.status == 0 || !strings.Contains(r.err, "this is a backup") || !strings.Contains(r.err, "fencepost restore") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	// Who looks is told that it is a backup, and verify knows by itself that it has one version.
	if out := must(t, "", "verify", bk); !strings.Contains(out, "nothing is wrong") {
		t.Error(out)
	}
	if out := must(t, "", "status", bk); !strings.Contains(out, "read only") {
		t.Error(out)
	}
	if out := must(t, "", "doctor", bk); !strings.Contains(out, "a backup of log") {
		t.Error(out)
	}
	if r := run(t, "", "restore", bk, bk+"/"); r.status == 0 {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "restore", log, bk); r.status == 0 {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"cat", bk}, {"status", "--objects", bk}, {"doctor", bk}, {"lag", "--at", "1", bk}, {"files", bk}, {"pins", bk}, {"history", bk}} {
		if r := run(t, "", args...); r.status != 0 {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if after := must(t, "", "verify", "--copy", bk); cut(after) != cut(before) {
		t.Errorf("%s, was %s", after, before)
	}
	must(t, "c\n", "append", log)
	must(t, "", "backup", log, bk)
	must(t, "", "restore", bk, back)
	must(t, "d\n", "append", back)
	if got := must(t, "", "cat", back); got != "a\nb\nc\nd\n" {
		t.Errorf("%q", got)
	}
}

// cut is a report without the time that it took.
func cut(report string) string { before, _, _ := strings.Cut(report, "; in "); return before }

// A verb that writes refuses a place that leads into the folders of a log; one with such a name elsewhere is a place like others.
func TestPlacesWithinLogs(t *testing.T) {
	base := fileURL(t)
	log := base + "/data"
	must(t, "", "init", "--grace", "1s", log)
	must(t, "a\n", "append", log)
	for _, place := range []string{log + "/data", log + "/lock", log + "/tmp/x", log + "/consumer/", log + "/manifest/../data", log + "/file/_delta_log"} {
		for _, args := range [][]string{{"init", place}, {"append", place}, {"exec", "--no-wait", place, "--", "true"}, {"lock", "-n", place, "job", "--", "true"}, {"probe", place}, {"gate", "set", "--epoch", "1", place, "x", "y"}, {"backup", log, place}} {
			if r := run(t, "b\n", args...); r.status == 0 || !strings.Contains(r.err, "within") {
				t.Fatalf("%v: %+v", args, r)
			}
		}
	}
	if r := run(t, "", "verify", log); r.status != 0 {
		t.Errorf("%+v", r)
	}
	must(t, "b\n", "append", log)
}

// A place within what has certainly no log is a place like others. If the outer place has a log, or a group, or what cannot be read, each verb
// refuses, and leaves no folder and no lock.
//
// guard:outside. Without this check: an operator means s3://bucket/orders, and runs `append s3://bucket/orders/data`;
// a log is made there, and its lock and format.json are among the slots of the other log.
func TestPlacesWithinOthers(t *testing.T) {
	dir := t.TempDir()
	base := (&url.URL{Scheme: "file", Path: dir}).String()
	log := base + "/log"
	must(t, "", "init", "--grace", "1s", log)
	must(t, "a\n", "append", log)
	must(t, "", "compact", log)
	must(t, "", "init", base+"/b/data")
	must(t, "a\n", "append", base+"/b/data")
	if err := os.MkdirAll(dir+"/grp/group", 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/grp/group/group.json", "{}")
	if err := os.Symlink(dir+"/log/data", dir+"/link"); err != nil {
		t.Fatal(err)
	}
	tree := func() (all []string) {
		if err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			all = append(all, path)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	format, err := os.ReadFile(dir + "/log/format.json")
	if err != nil {
		t.Fatal(err)
	}
	verbs := func(place string) [][]string {
		return [][]string{{"init", place}, {"append", place}, {"exec", "--no-wait", place, "--", "true"}, {"probe", place}, {"gate", "set", "--epoch", "1", place, "x", "y"}, {"backup", base + "/b/data", place}}
	}
	refused := func(place, says string, verbs [][]string) {
		t.Helper()
		before := tree()
		for _, args := range verbs {
			if r := run(t, "b\n", args...); r.status == 0 || !strings.Contains(r.err, says) {
				t.Fatalf("%v: %+v", args, r) // what is not refused takes seconds, of a mutant for each verb and place
			}
		}
		if after := tree(); !slices.Equal(after, before) {
			t.Errorf("%s: left\n%s\nwas\n%s", place, strings.Join(after, "\n"), strings.Join(before, "\n"))
		}
	}
	for _, place := range []string{log + "/data/x", log + "/data/x?create=true", log + "/.fencepost/x", base + "/link/x", log + "/DATA/x"} {
		refused(place, "lies within", verbs(place))
	}
	for _, place := range []string{base + "/grp/group/x", base + "/grp/compactors", base + "/grp/partition", base + "/grp/partition/x"} {
		refused(place, "lies within the group", verbs(place))
	}
	refused(base+"/b", "give another place", [][]string{{"append", base + "/b"}})
	write(t, dir+"/log/format.json", "{")
	refused(log+"/data/x", "cannot be read", verbs(log+"/data/x"))
	if err := os.Remove(dir + "/log/format.json"); err != nil {
		t.Fatal(err)
	}
	refused(log+"/data/x", "cannot be read", verbs(log+"/data/x"))
	write(t, dir+"/log/format.json", string(format))
	for _, place := range []string{base + "/.fencepost/orders", base + "/tmp/group/member", base + "/data/file/_delta_log", base + "/grp/partition/000001", base + "/.fencepost-prod/orders"} {
		must(t, "", "init", place)
		must(t, "b\n", "append", place)
		must(t, "", "status", place)
		must(t, "", "compact", place)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
