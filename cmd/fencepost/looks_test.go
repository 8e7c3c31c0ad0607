package main

import (
	"context"
	"encoding/json"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	historyverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/history"
	lagverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/lag"
	stepdownverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/stepdown"
	truncateverb "github.com/fencepost/fencepost/cmd/fencepost/internal/verb/truncate"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// spy notes the requests of a store that tell how costly a verb is.
type spy struct {
	store.Store
	mu     sync.Mutex
	lists  []string
	writes []string
}

func (w *spy) List(ctx context.Context, prefix string, o *store.ListOptions) iter.Seq2[store.Info, error] {
	w.mu.Lock()
	w.lists = append(w.lists, prefix)
	w.mu.Unlock()
	return w.Store.List(ctx, prefix, o)
}

func (w *spy) Put(ctx context.Context, key string, b []byte, o *store.PutOptions) (store.Info, error) {
	w.mu.Lock()
	w.writes = append(w.writes, key)
	w.mu.Unlock()
	return w.Store.Put(ctx, key, b, o)
}

func (w *spy) Upload(ctx context.Context, key string, b io.Reader, o *store.UploadOptions) (store.Info, error) {
	w.mu.Lock()
	w.writes = append(w.writes, key)
	w.mu.Unlock()
	return w.Store.Upload(ctx, key, b, o)
}

// spied runs the command and returns its requests.
func spied(t *testing.T, args ...string) *spy {
	t.Helper()
	w := &spy{}
	a := &kit.Kit{Out: io.Discard, Err: io.Discard, Open: func(ctx context.Context, url string) (st store.Store, err error) {
		w.Store, err = store.Open(ctx, url)
		return w, err
	}}
	if status := runWith(t.Context(), a, args); status != 0 {
		t.Fatalf("%q: status %d", args, status)
	}
	return w
}

// TestStatusIsCheap: monitoring polls it, so it lists neither data nor everything, and
// writes nothing.
func TestStatusIsCheap(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\nb\n", "append", url)
	must(t, "", "compact", url)
	must(t, "c\n", "append", url) // another epoch than that of the floor
	for _, args := range [][]string{{"status", url}, {"status", "--json", url}, {"history", url}} {
		w := spied(t, args...)
		for _, prefix := range w.lists {
			if prefix == "" || strings.HasPrefix(prefix, layout.DataPrefix) || strings.HasPrefix(prefix, layout.SegmentPrefix) {
				t.Errorf("%q lists %q", args, prefix)
			}
		}
		if len(w.writes) > 0 || len(w.lists) > 5 {
			t.Errorf("%q writes %q, lists %q", args, w.writes, w.lists)
		}
	}
	if w := spied(t, "lag", url); len(w.writes) > 0 {
		t.Errorf("lag writes %q", w.writes)
	}
	if out := must(t, "", "status", url); strings.Contains(out, "objects  ") {
		t.Error(out)
	}
}

// TestStatusWatch prints again after a change, and only then.
func TestStatusWatch(t *testing.T) {
	url := newLog(t, memURL(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs buffer
	a := &kit.Kit{Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int, 1)
	go func() { ended <- runWith(ctx, a, []string{"status", "--watch", "--json", "--interval", "1ms", url}) }()
	states := func() (all []survey.Log) {
		d := json.NewDecoder(strings.NewReader(out.String()))
		for {
			var s survey.Log
			if d.Decode(&s) != nil {
				return all
			}
			all = append(all, s)
		}
	}
	eventually(t, "the first state", func() bool { return len(states()) == 1 })
	must(t, "a\nb\n", "append", url)
	eventually(t, "the records", func() bool { all := states(); return all[len(all)-1].End == 2 })
	cancel()
	<-ended
	all := states()
	for i, s := range all[1:] {
		if s.End == all[i].End && s.Leader == all[i].Leader && s.Version == all[i].Version && s.Tail == all[i].Tail {
			t.Errorf("state %d is printed twice: %+v", i, s)
		}
	}
}

// TestHistory: who led, how long, and how it ended.
func TestHistory(t *testing.T) {
	url := newLog(t, memURL(t))
	if out := must(t, "", "history", url); out != "nobody has led yet\n" {
		t.Errorf("%q", out)
	}
	for range 3 {
		must(t, "a\n", "append", url)
	}
	terms := parsed[[]historyverb.TermDoc](t, "history", "--json", "--limit", "2", url)
	if len(terms) != 2 || terms[0].Epoch != 3 || terms[1].Epoch != 2 || terms[0].Reason != "resigned" || terms[0].Led == "" || terms[1].Gap == "" || terms[0].Leads || terms[0].EndedBy != "" {
		t.Errorf("%+v", terms)
	}
	out := must(t, "", "history", url)
	if strings.Count(out, "\n") != 4 || strings.Count(out, "resigned") != 3 || !strings.Contains(out, "GAP BEFORE") {
		t.Error(out)
	}
	if terms := parsed[[]historyverb.TermDoc](t, "history", "--json", "--compactor", url); len(terms) != 0 {
		t.Errorf("%+v", terms)
	}
}

// TestLag: what waits for a compactor, for a new leader, and for a consumer.
func TestLag(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\nb\nc\n", "append", url)
	must(t, "", "compact", url)
	must(t, "d\ne\n", "append", url)
	l := parsed[lagverb.Doc](t, "lag", "--json", "--at", "1", url)
	if l.End != 5 || l.FloorOffset != 3 || l.Unfolded.Objects != 2 || l.Unfolded.Bytes == 0 || l.Unfolded.OldestAt.IsZero() || l.LastAt.IsZero() || l.NotedOffset != 5 ||
		l.Consumer.Behind != 4 || l.Consumer.Next.IsZero() {
		t.Errorf("%+v %+v", l.Log, l.Consumer)
	}
	out := must(t, "", "lag", "--at", "5", url)
	for _, want := range []string{"end         5 records; the last object came ", "compacted   3 records; 2 records wait in 2 objects, ", "a new leader reads 0 records", "consumer    at 5; 0 records behind"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if r := run(t, "", "lag", "--at", "6", url); r.status != 1 || !strings.Contains(r.err, "the log ends at 5") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	must(t, "", "compact", url)
	if out := must(t, "", "lag", url); !strings.Contains(out, "5 records; nothing waits") {
		t.Error(out)
	}
}

// TestPinSaysWhatItLacks: what a user sees at the end of the log is not pinned before it is
// compacted.
func TestPinSaysWhatItLacks(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\nb\n", "append", url)
	r := run(t, "", "pin", "--name", "x", url)
	if r.status != 0 || !strings.Contains(r.out, "no records, 0 files") || !strings.Contains(r.err, "not pinned: 2 records after offset 0") || !strings.Contains(r.err, "fencepost compact") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	must(t, "", "compact", url)
	r = run(t, "", "pin", "--name", "y", url)
	if r.status != 0 || !strings.Contains(r.out, "2 records, 0 to 1, 0 files") || r.err != "" {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
	if d := parsed[struct {
		End    uint64 `json:"end"`
		LogEnd uint64 `json:"log_end"`
	}](t, "pin", "--json", "--name", "z", url); d.End != 2 || d.LogEnd != 2 {
		t.Errorf("%+v", d)
	}
}

// TestTruncateDryRun changes nothing.
func TestTruncateDryRun(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\nb\nc\n", "append", url)
	if r := run(t, "", "truncate", "--dry-run", "--before", "2", url); r.status != 1 || !strings.Contains(r.err, "compact first") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	must(t, "", "compact", url)
	w := spied(t, "truncate", "--dry-run", "--before", "2", url)
	if len(w.writes) > 0 {
		t.Errorf("it writes %q", w.writes)
	}
	if out := must(t, "", "truncate", "--dry-run", "--before", "2", url); !strings.Contains(out, "would give up 2 records, 0 to 1; the log would begin at record 2\n") {
		t.Error(out)
	}
	d := parsed[truncateverb.CutDoc](t, "truncate", "--dry-run", "--json", "--before", "3", url)
	if d.First != 0 || d.Before != 3 || d.Records != 3 {
		t.Errorf("%+v", d)
	}
	if got := must(t, "", "cat", url); got != "a\nb\nc\n" {
		t.Errorf("%q", got)
	}
}

// TestWatchedCompactionAsJSON: a line for each round that did something.
func TestWatchedCompactionAsJSON(t *testing.T) {
	url := newLog(t, memURL(t))
	must(t, "a\n", "append", url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs buffer
	a := &kit.Kit{Out: &out, Err: &errs, Open: store.Open}
	ended := make(chan int, 1)
	go func() {
		ended <- runWith(ctx, a, []string{"compact", "--watch", "--json", "--interval", "1ms", "--min-objects", "1", url})
	}()
	eventually(t, "a round", func() bool { return strings.Count(out.String(), "\n") >= 1 })
	must(t, "b\n", "append", url)
	folded := func() (n uint64) {
		for l := range strings.Lines(out.String()) {
			var r compactor.Report
			if err := json.Unmarshal([]byte(l), &r); err != nil {
				t.Fatalf("%v: %s", err, l)
			}
			n += r.Records
		}
		return n
	}
	eventually(t, "both records", func() bool { return folded() == 2 })
	cancel()
	<-ended
}

// TestStepDownAsJSON tells whether somebody was deposed.
func TestStepDownAsJSON(t *testing.T) {
	url := newLog(t, memURL(t))
	if d := parsed[stepdownverb.DeposedDoc](t, "step-down", "--json", url); d.Deposed {
		t.Errorf("%+v", d)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	in, w := io.Pipe()
	defer w.Close()
	ended := make(chan result, 1)
	go func() { ended <- inProcess(ctx, in, "append", url) }()
	eventually(t, "a leader", func() bool { return strings.Contains(must(t, "", "status", url), "epoch 1, since") })
	if d := parsed[stepdownverb.DeposedDoc](t, "step-down", "--json", url); !d.Deposed || d.Epoch != 1 || d.Holder == "" || d.Since.IsZero() {
		t.Errorf("%+v", d)
	}
	cancel()
	_ = w.Close()
	<-ended
}

// TestProbeCreates: a directory that does not exist is tried as init would.
func TestProbeCreates(t *testing.T) {
	if out := must(t, "", "probe", fileURL(t)); strings.Count(out, "kept") < 5 {
		t.Error(out)
	}
}

// TestEveryVerbHasJSON: programs may give --json to each verb that prints something of its own
// and is not a page or a server.
func TestEveryVerbHasJSON(t *testing.T) {
	a := &kit.Kit{Open: store.Open}
	for c := range family(rootCommand(a)) {
		if c.Hidden || slices.Contains([]string{"serve", "exporter", "agent", "catalog", "exec", "lock", "gate run"}, kit.Verb(c)) {
			continue
		}
		if c.Flags().Lookup("json") == nil && !c.HasSubCommands() && c.Parent().Name() != "completion" {
			t.Errorf("%s has no --json", kit.Verb(c))
		}
	}
}

// TestRelativeDirectory: the error shows the URL as it was typed.
func TestRelativeDirectory(t *testing.T) {
	for _, v := range []string{"status", "cat", "append", "probe"} {
		if r := run(t, "", v, "file://relative/dir"); r.status != 64 || !strings.Contains(r.err, `"file://relative/dir"`) || strings.Contains(r.err, "?") {
			t.Errorf("%s: status %d: %s", v, r.status, r.err)
		}
	}
}
