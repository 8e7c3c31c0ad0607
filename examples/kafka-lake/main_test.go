//go:build unix

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "kafka-lake")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestStory: the command checks itself. The story is told here with fewer partitions and messages.
func TestStory(t *testing.T) {
	var out, errs bytes.Buffer
	cmd := exec.Command(build(t), "-partitions", "4", "-rate", "1000")
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	for _, want := range []string{
		`three workers share the partitions: ada [12], bob [12], cyd [12]`,
		`bob has uploaded .*\.parquet, and is killed before it commits it`,
		`the others have its partitions.*: ada 2, cyd 2`,
		`cyd has uploaded .*\.parquet, and is frozen while its commit is on the way`,
		`dan joins.*: ada 2, dan 2`,
		`cyd wakes up .*: partition/\d{6}/data/\d{20}/\d{20} → 412 Precondition Failed`,
		`the table has \d{3,} messages in \d+ files; \d{3,} were produced`,
		`lost: 0, doubled: 0, never produced: 0, changed: 0, gaps: 0, in 4 partitions with \d+ owners`,
		`in each of \d+ versions each partition's messages are there`,
		`among them those of bob and cyd`,
		`the compactor has deleted these`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the story does not say %q:\n%s", want, &out)
		}
	}
	if errs.Len() > 0 {
		t.Errorf("stderr: %s", &errs)
	}
}

func TestFlags(t *testing.T) {
	bin := build(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-store", "mem://x"}, "lives in the memory of one process"},
		{[]string{"-store", "nosuch://x"}, "no driver for nosuch://"},
		{[]string{"-store", "not-a-store"}, "has no scheme"},
		{[]string{"-rate", "0"}, "must be at least 1"},
		{[]string{"-worker", "a"}, "a worker needs -brokers, -topic and -store"},
		{[]string{"more"}, "unexpected argument"},
	} {
		out, err := exec.Command(bin, c.args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v, and %q is not in\n%s", c.args, err, c.want, out)
		}
	}
}
