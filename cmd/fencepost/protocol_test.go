package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// event is a line of append --protocol json.
type event struct {
	Event, Code, Why, Cursor, For string
	Epoch, First, End, Appends    uint64
	Unknown                       int
	NotCommitted                  int `json:"not_committed"`
}

// speaks runs append --protocol json in this process.
func speaks(t *testing.T, in string, args ...string) (events []event, r result) {
	t.Helper()
	r = run(t, in, append([]string{"append", "--protocol", "json"}, args...)...)
	for line := range strings.Lines(r.out) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, e)
	}
	return events, r
}

func TestProtocol(t *testing.T) {
	url := newLog(t, memURL(t))
	events, r := speaks(t, `{"text":"a\n","cursor":"1"}`+"\n"+`{"records":[{"base64":"/w=="},{"value":{"n":1}}],"cursor":"2"}`+"\n", url)
	if r.status != 0 {
		t.Fatalf("status %d: %s%s", r.status, r.out, r.err)
	}
	if e := events[0]; e.Event != "leading" || e.Epoch != 1 || e.Cursor != "" {
		t.Errorf("%+v", e)
	}
	var appends, end uint64
	for _, e := range events[1 : len(events)-1] {
		if e.Event != "" || e.First != end {
			t.Errorf("%+v", e)
		}
		appends, end = appends+e.Appends, e.End
	}
	if e := events[len(events)-1]; e.Event != "ended" || e.End != 3 || appends != 2 || end != 3 {
		t.Errorf("%s", r.out)
	}
	// What cat prints can be appended again.
	records := must(t, "", "cat", "--json", url)
	other := newLog(t, memURL(t)+"-other")
	if _, r := speaks(t, records, other); r.status != 0 {
		t.Fatalf("status %d: %s%s", r.status, r.out, r.err)
	}
	if a, b := contents(t, url), contents(t, other); a != b || a != "a\n\xff{\"n\":1}" {
		t.Errorf("%q and %q", a, b)
	}
	// A second run continues at the cursor, and must not begin before it.
	if events, _ := speaks(t, `{"flush":true}`, url); events[0].Cursor != "2" || events[0].End != 3 {
		t.Errorf("%+v", events[0])
	}
	events, r = speaks(t, `{"text":"a","cursor":"1"}`, url)
	if last := events[len(events)-1]; r.status != 1 || last.Event != "lost" || last.Code != "invalid" || last.NotCommitted != 1 || !strings.Contains(r.err, "must not go down") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	// What comes before a bad line is committed.
	events, r = speaks(t, `{"text":"z","cursor":"3"}`+"\nnonsense\n", url)
	if last := events[len(events)-1]; r.status != 1 || last.Code != "invalid" || last.End != 4 || !strings.Contains(r.err, "line 2") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
}

func TestProtocolUsage(t *testing.T) {
	url := newLog(t, memURL(t))
	for args, says := range map[string]string{
		"--protocol xml " + url:                      `--protocol is json, not "xml"`,
		"--protocol json " + url + " file":           "not with the file",
		"--protocol json --json " + url:              "--protocol and --json exclude each other",
		"--protocol json --cursor " + url:            "--protocol and --cursor exclude each other",
		"--protocol json --promise 1ms " + url:       "at least 1s",
		"--promise 10s " + url:                       "--promise goes with --protocol",
		"--protocol json --epoch 1 --no-wait " + url: "--epoch and --no-wait exclude each other",
	} {
		if r := run(t, "", append([]string{"append"}, strings.Fields(args)...)...); r.status != 64 || !strings.Contains(r.err, says) {
			t.Errorf("%s: status %d: %s", args, r.status, r.err)
		}
	}
}

// In an epoch of fencepost exec several files go through one append.
func TestProtocolInEpoch(t *testing.T) {
	url := newLog(t, memURL(t))
	events, r := speaks(t, fmt.Sprintf(`{"text":"a"}`+"\n"+`{"files":[%q],"cursor":"f"}`+"\n"+`{"files":[%q]}`, parquetFile(t, 2), parquetFile(t, 3)), "--epoch", "5", url)
	if r.status != 0 || events[0].Epoch != 5 {
		t.Fatalf("status %d: %s%s", r.status, r.out, r.err)
	}
	if rows := liveRows(t, url); rows != 5 {
		t.Errorf("the table has %d rows", rows)
	}
	// Another one cannot open that epoch again.
	if r := run(t, "", "append", "--protocol", "json", "--epoch", "5", url); r.status != 77 {
		t.Errorf("status %d: %s", r.status, r.err)
	}
}

// TestProtocolSignal: what was read at SIGTERM is committed first.
func TestProtocolSignal(t *testing.T) {
	url := newLog(t, fileURL(t))
	c := command(t, "append", "--protocol", "json", url)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	next := func() (e event) {
		t.Helper()
		if !lines.Scan() {
			t.Fatal("no more events")
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	if e := next(); e.Event != "leading" {
		t.Fatalf("%+v", e)
	}
	if _, err := io.WriteString(in, strings.Repeat(`{"text":"a"}`+"\n", 1000)); err != nil {
		t.Fatal(err)
	}
	var last event
	for last.End == 0 {
		last = next()
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for last.Event != "ended" {
		last = next()
	}
	if status := exitStatus(t, c.Wait()); status != 143 || last.Code != "stopped" {
		t.Errorf("status %d, %+v", status, last)
	}
	if got := len(contents(t, url)); uint64(got) != last.End {
		t.Errorf("the log has %d records, and the program was told of %d", got, last.End)
	}
}

type row struct {
	N int64 `parquet:"n"`
}

// parquetFile writes one with n rows.
func parquetFile(t *testing.T, n int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.parquet")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := parquet.Write(f, make([]row, n)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// liveRows counts the rows of a log's table.
func liveRows(t *testing.T, url string) (n uint64) {
	t.Helper()
	for _, f := range parsed[struct{ Files []struct{ Records uint64 } }](t, "files", "--json", url).Files {
		n += f.Records
	}
	return n
}
