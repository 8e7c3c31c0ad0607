package main

import (
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
		{"step-down", bk}, {"pin", "--name", "x", bk}, {"cat", "--consumer", "billing", bk}, {"publish", bk}, {"verify", "--repair", bk}, {"backup", bk, base + "/bk2"},
	} {
		if r := run(t, "c\n", args...); r.status == 0 || !strings.Contains(r.err, "this is a backup") || !strings.Contains(r.err, "fencepost restore") {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := run(t, "", "restore", bk, bk+"/"); r.status == 0 {
		t.Errorf("%+v", r)
	}
	if r := run(t, "", "restore", log, bk); r.status == 0 {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"cat", bk}, {"export", bk}, {"status", "--objects", bk}, {"doctor", bk}, {"lag", "--at", "1", bk}, {"files", bk}, {"pins", bk}, {"history", bk}} {
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
		for _, args := range [][]string{{"init", place}, {"append", place}, {"exec", "--no-wait", place, "--", "true"}, {"probe", place}, {"gate", "set", "--epoch", "1", place, "x", "y"}, {"backup", log, place}} {
			if r := run(t, "b\n", args...); r.status == 0 || !strings.Contains(r.err, "within") {
				t.Errorf("%v: %+v", args, r)
			}
		}
	}
	if r := run(t, "", "verify", log); r.status != 0 {
		t.Errorf("%+v", r)
	}
	must(t, "b\n", "append", log)
}
