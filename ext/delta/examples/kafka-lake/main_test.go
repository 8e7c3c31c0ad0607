//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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

// TestWorkerAlone: a worker without a story, as the README starts it: its standard input is closed, and
// it ends in good order on SIGTERM.
func TestWorkerAlone(t *testing.T) {
	brokers, stop, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	if err := createTopic(t.Context(), brokers, "orders", 2); err != nil {
		t.Fatal(err)
	}
	l, dir := newLedger(2), t.TempDir()
	ctx, enough := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer enough()
	if err := produce(ctx, brokers, "orders", 1000, l); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(build(t), "-worker", "ada", "-brokers", brokers, "-topic", "orders", "-store", "file://"+dir, "-flush", "10ms")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := sync.OnceValue(cmd.Wait)
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = ended() })
	n := uint64(0)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%v: %s", err, lines.Text())
		}
		if n += e.Rows; n == uint64(l.n) && e.What == "committed" {
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	if err := ended(); err != nil || n != uint64(l.n) || n == 0 {
		t.Fatalf("it ended with %v, and has committed %d of %d messages", err, n, l.n)
	}
	logs, table, err := openStores(t.Context(), "file://"+dir)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{config: config{partitions: 2}, logs: logs, table: table}
	if err := s.publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	found := newDeltaTable(table)
	if err := found.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := l.compare(found.newest)
	if err := v.err(); err != nil {
		t.Error(err)
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
