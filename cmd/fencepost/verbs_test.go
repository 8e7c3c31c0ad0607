package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	initlogverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/initlog"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/verify"
)

func TestCat(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\n<b>\n\xff\n", "append", url)
	if got := must(t, "", "cat", "--from", "1", url); got != "<b>\n\xff\n" {
		t.Errorf("%q", got)
	}
	if got := must(t, "", "cat", "--from", "3", url); got != "" {
		t.Errorf("%q", got)
	}
	lines := strings.Split(must(t, "", "cat", "--format", "json", url), "\n")
	if len(lines) != 4 || !strings.Contains(lines[1], `"offset":1,`) || !strings.HasSuffix(lines[1], `"text":"<b>\n"}`) || !strings.HasSuffix(lines[2], `"base64":"/wo="}`) {
		t.Errorf("%q", lines)
	}
	must(t, "", "compact", url)
	if got := must(t, "", "cat", url); got != "a\n<b>\n\xff\n" {
		t.Errorf("compacted: %q", got)
	}
}

// broken is a standard output that fails.
type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

func TestCatWithoutReader(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\n", "append", url)
	for err, want := range map[error]int{syscall.EPIPE: 0, io.ErrClosedPipe: 0, syscall.ENOSPC: 1} {
		var errs buffer
		a := &kit.Kit{Out: broken{err}, Err: &errs, Open: store.Open}
		got := runWith(t.Context(), a, []string{"cat", url})
		if got != want || (want == 0) != (errs.String() == "") || (want == 1 && !strings.Contains(errs.String(), "standard output")) {
			t.Errorf("%v: status %d: %s", err, got, errs.String())
		}
	}
	// The real thing: a process whose pipe is closed.
	file := newLog(t, fileURL(t))
	must(t, strings.Repeat("0123456789\n", 200_000), "append", file)
	c := command(t, "cat", file)
	var errs buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if l, err := bufio.NewReader(out).ReadString('\n'); err != nil || l != "0123456789\n" {
		t.Fatal(l, err)
	}
	_ = out.Close()
	if got := exitStatus(t, c.Wait()); got != 0 || errs.String() != "" {
		t.Errorf("status %d: %s", got, errs.String())
	}
}

func TestFollow(t *testing.T) {
	url := newLog(t, fileURL(t))
	must(t, "a\n", "append", url)
	c := command(t, "cat", "--follow", url)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for _, want := range []string{"a\n", "b\n", "c\n"} {
		if want != "a\n" {
			must(t, want, "append", url)
		}
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Fatalf("%q, %v", got, err)
		}
	}
	if err := c.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := exitStatus(t, c.Wait()); got != 130 {
		t.Errorf("status %d", got)
	}
}

// TestFollowFromBeyondTheEnd waits for the log to come there, and says so.
func TestFollowFromBeyondTheEnd(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\n", "append", url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs buffer
	a := &kit.Kit{Out: &out, Err: &errs, Open: store.Open, Patience: time.Nanosecond}
	ended := make(chan int, 1)
	go func() { ended <- runWith(ctx, a, []string{"cat", "--follow", "--from", "2", url}) }()
	eventually(t, "a word on what it waits for", func() bool { return errs.String() == "waiting for record 2; the log ends at 1\n" })
	must(t, "b\nc\n", "append", url)
	eventually(t, "the record", func() bool { return out.String() == "c\n" })
	cancel()
	<-ended
}

func TestInitAndProbe(t *testing.T) {
	url := memURL(t)
	out := must(t, "", "init", "--max-record", "1MiB", "--grace", "1m", url)
	if !strings.HasPrefix(out, "made log ") {
		t.Error(out)
	}
	again := must(t, "", "init", "--max-record=1MiB", url)
	if again != strings.Replace(out, "made", "there is already", 1) {
		t.Error(again)
	}
	if f := parsed[initlogverb.FormatJSON](t, "init", "--json", url); f.Limits.Record != 1<<20 || f.Grace != document.Duration(time.Minute) {
		t.Errorf("%+v", f)
	}
	if out := must(t, "", "probe", url); strings.Count(out, "kept") < 5 {
		t.Error(out)
	}
	if p := parsed[probe.Report](t, "probe", "--json", url); len(p.Kept) < 5 {
		t.Errorf("%+v", p)
	}
}

// TestInitSibling: a store that was probed for one log lately is not probed for the next one.
func TestInitSibling(t *testing.T) {
	url := memURL(t)
	first := parsed[initlogverb.FormatJSON](t, "init", "--json", url+"/a")
	if second := parsed[initlogverb.FormatJSON](t, "init", "--json", "--sibling", url+"/a", url+"/b"); second.Log == first.Log || !second.Probe.At.Equal(first.Probe.At) {
		t.Errorf("probed again: %+v", second.Probe)
	}
	for name, args := range map[string][]string{"in another": {"--sibling", "mem://elsewhere/a", url + "/c"}, "a directory": {"--sibling", "file:///a", "file:///b"}} {
		if r := run(t, "", append([]string{"init"}, args...)...); r.status != 64 || !strings.Contains(r.err, "not in the same bucket") {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestStatus(t *testing.T) {
	url := newLog(t, memURL(t))
	if out := must(t, "", "status", "--objects", url); !strings.Contains(out, "nobody yet") || !strings.Contains(out, "0/1; 0 records") {
		t.Error(out)
	}
	must(t, "a\nb\n", "append", "--cursor", "--source", "x", url)
	must(t, "", "compact", url)
	must(t, "c\n", "append", url)
	out := must(t, "", "status", "--objects", url)
	for _, want := range []string{
		"leader     nobody; ", "led in epoch 2, resigned", "tail       2/2; 3 records", `{"source":"x","format":"lines","offset":4,"crc32c":`,
		"floor      1/2, offset 2; noted 2/2, offset 3", "1 record after it, which are not compacted", "segment: 1, ", "compactor of epoch 1",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	s := parsed[survey.Log](t, "status", "--json", "--objects", url)
	if s.End != 3 || s.Tail != (fence.Position{Epoch: 2, Seq: 2}) || s.Floor != (fence.Position{Epoch: 1, Seq: 2}) || s.Leader.Leads || s.Leader.Epoch != 2 ||
		s.Objects[inspect.Lock].Objects != 2 || s.BeforeFloor.Objects != 1 || !strings.Contains(s.CursorText, `"x"`) {
		t.Errorf("%+v", s)
	}
}

func TestCompact(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\nb\n", "append", url)
	if out := must(t, "", "compact", url); !strings.Contains(out, "2 records") || !strings.Contains(out, "into 1 segment;") || !strings.Contains(out, "pruned ") {
		t.Error(out)
	}
	must(t, "c\n", "append", url)
	if r := parsed[compactor.Report](t, "compact", "--json", url); r.Records != 1 || r.Segments != 1 {
		t.Errorf("%+v", r)
	}
	if got := must(t, "", "cat", url); got != "a\nb\nc\n" {
		t.Errorf("%q", got)
	}
}

func TestCompactWatch(t *testing.T) {
	url := newLog(t, fileURL(t))
	must(t, "a\nb\n", "append", url)
	c := command(t, "compact", "--watch", "--interval", "20ms", "--min-objects", "1", url)
	var errs buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a word", func() bool { return strings.Contains(errs.String(), "the compactor of epoch 1; it checks every 20ms") })
	eventually(t, "a line for a round that did something", func() bool { return strings.Contains(errs.String(), "compacted") })
	must(t, "c\n", "append", url)
	eventually(t, "another", func() bool { return strings.Count(errs.String(), "compacted") > 1 })
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := exitStatus(t, c.Wait()); got != 143 {
		t.Errorf("status %d: %s", got, errs.String())
	}
	if got := must(t, "", "cat", url); got != "a\nb\nc\n" {
		t.Errorf("%q", got)
	}
}

// TestVerify on files; package verify's own tests have every kind of damage.
func TestVerify(t *testing.T) {
	url := newLog(t, fileURL(t))
	must(t, "a\nb\n", "append", url)
	must(t, "", "compact", url)
	must(t, "c\n", "append", url)
	out := must(t, "", "verify", url)
	if !strings.Contains(out, "read 3 records, 0 to 2: 1 segment, 2 objects") || !strings.HasSuffix(out, "nothing is wrong\n") {
		t.Error(out)
	}
	key := layout.DataKey(fence.Position{Epoch: 2, Seq: 1})
	flip(t, openStore(t, url), key)
	if err := openStore(t, url).Delete(t.Context(), layout.DataKey(fence.Position{Epoch: 0, Seq: 1})); err != nil {
		t.Fatal(err)
	}
	r := run(t, "", "verify", url)
	if r.status != 65 || !strings.Contains(r.out, "problem: "+key+": ") || !strings.Contains(r.out, "the seal that ended epoch 0 is missing") || !strings.HasSuffix(r.out, "2 problems\n") || r.err != "" {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	r = run(t, "", "verify", "--json", url)
	var report verify.Report
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.status != 65 || len(report.Problems) != 2 || report.Problems[0].Key != key || report.Problems[0].Remedy == "" {
		t.Errorf("status %d, %v: %+v", r.status, err, report.Problems)
	}
}

// TestVerifyRepairs says first what it would do.
// The metrics of a verification are in a file, with the log's URL, and stay there if a later one
// cannot read.
func TestVerifyMetrics(t *testing.T) {
	url, file := newLog(t, memURL(t)), filepath.Join(t.TempDir(), "orders.prom")
	must(t, "", "verify", "--metrics", file, url)
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`fencepost_verify_problems{url="`, `fencepost_verify_runs_total{outcome="ok",url="`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the file has no %q:\n%s", want, b)
		}
	}
	if strings.Contains(string(b), "fencepost_writer") {
		t.Errorf("the file has metrics of other parts:\n%s", b)
	}
	if r := run(t, "", "verify", "--metrics", file, "mem://none"); r.status != 66 {
		t.Errorf("%+v", r)
	}
	if after, err := os.ReadFile(file); err != nil || string(after) != string(b) {
		t.Errorf("%v: the file has changed to %s", err, after)
	}
	if r := run(t, "", "verify", "--metrics", "none/orders.prom", url); r.status != 64 || !strings.Contains(r.err, "in a directory that exists") {
		t.Errorf("%+v", r)
	}
}

func TestVerifyRepairs(t *testing.T) {
	url := newLog(t, fileURL(t))
	must(t, "a\nb\n", "append", url)
	must(t, "", "compact", url)
	seal := layout.DataKey(fence.Position{Epoch: 0, Seq: 1})
	if err := openStore(t, url).Delete(t.Context(), seal); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "verify", "--dry-run", url); r.status != 64 || !strings.Contains(r.err, "--dry-run goes with --repair") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	if r := run(t, "", "verify", "--repair", "--dry-run", url); r.status != 65 || !strings.Contains(r.out, "--repair` can create the seal again") || !strings.HasSuffix(r.out, "1 problem\n") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	if r := run(t, "", "verify", "--repair", url); r.status != 0 || !strings.Contains(r.out, seal+": the seal that ended epoch 0 is missing") || !strings.HasSuffix(r.out, "1 problem repaired, 0 left\n") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	if out := must(t, "", "verify", "--part", "today/7", url); !strings.Contains(out, " of 7\nnothing is wrong\n") {
		t.Error(out)
	}
	for _, part := range []string{"", "3", "0/3", "4/3", "1/0", "x/3", "today/x"} {
		if r := run(t, "", "verify", "--part", part, url); r.status != 64 || !strings.Contains(r.err, "want ") {
			t.Errorf("--part %q: status %d: %s", part, r.status, r.err)
		}
	}
}

func TestVersion(t *testing.T) {
	if out := must(t, "", "--version"); !strings.HasPrefix(out, "fencepost ") || strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
}
