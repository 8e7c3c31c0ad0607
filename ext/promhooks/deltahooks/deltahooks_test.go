package deltahooks_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/promhooks/deltahooks"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

var write = flag.Bool("write", false, "write the table in docs/metrics.md")

func newMetrics(t *testing.T) (*deltahooks.Metrics, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	m, err := deltahooks.New(reg, &deltahooks.Options{Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	return m, reg
}

// want compares a metric: of a histogram the count of ok rounds.
func want(t *testing.T, reg prometheus.Gatherer, v float64, name string) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		m := f.GetMetric()[len(f.GetMetric())-1] // sorted by labels: ok is after error
		if got := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()); got != v {
			t.Errorf("%s is %v, want %v", name, got, v)
		}
		return
	}
	t.Errorf("there is no %s", name)
}

// A real publisher: what it makes is counted, and a file that no engine could read is a log that is
// left out, whose lag grows.
func TestPublisher(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
		m, reg := newMetrics(t)
		root, src, err := delta.Beside(l.Mem)
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		hooks := m.Publisher(delta.Hooks{Round: func(delta.Round) { told++ }})
		p, err := delta.Open(t.Context(), root, []delta.Source{src}, &delta.Options{Clock: clock.Go(), Settle: logtest.Quick, Hooks: hooks})
		if err != nil {
			t.Fatal(err)
		}
		w := l.Open(nil)
		defer l.Close(w)
		commit := func(f manifest.File) {
			if err := w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f}}); err != nil {
				t.Fatal(err)
			}
		}
		type row struct {
			ID int64 `parquet:"id"`
		}
		d, err := delta.NewWriter(t.Context(), w, &delta.WriterOptions[row]{Compression: delta.Plain}) // the others have goroutines outside of bubbles
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err = d.Write(t.Context(), []row{{1}, {2}}); err == nil {
			err = d.Commit(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		round := func() {
			if _, err := p.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		round()
		want(t, reg, 1, "fencepost_delta_files")
		want(t, reg, 0, "fencepost_delta_behind_edits")
		want(t, reg, 0, "fencepost_delta_refused_sources")
		want(t, reg, 1, "fencepost_delta_round_seconds")
		want(t, reg, 2, "fencepost_delta_versions_total") // a schema, and the file
		want(t, reg, 1, "fencepost_delta_version")
		time.Sleep(time.Minute)
		round()
		want(t, reg, 0, "fencepost_delta_lag_seconds")
		bad, err := w.CreateFile(t.Context(), ".parquet", 0)
		if err == nil {
			_, err = bad.Write([]byte("this is not Parquet"))
		}
		if err == nil {
			err = bad.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		commit(bad.File())
		time.Sleep(time.Minute)
		round()
		want(t, reg, 1, "fencepost_delta_refused_sources")
		want(t, reg, 1, "fencepost_delta_behind_edits")
		want(t, reg, 60, "fencepost_delta_lag_seconds")
		if told != 3 {
			t.Errorf("the caller's own hook was told %d rounds, not 3", told)
		}
	})
}

// One of two logs cannot be opened. It counts as one that is left out, and the lag grows.
func TestSourceThatCannotBeOpened(t *testing.T) {
	logtest.Bubble(t, logtest.WithGrace(time.Second), func(t *testing.T, l *logtest.Log) {
		m, reg := newMetrics(t)
		root, src, err := delta.Beside(l.Mem)
		if err != nil {
			t.Fatal(err)
		}
		sources := []delta.Source{src, {Log: memstore.New(nil), Files: "other/"}}
		p, err := delta.Open(t.Context(), root, sources, &delta.Options{Clock: clock.Go(), Settle: logtest.Quick, Hooks: m.Publisher(delta.Hooks{})})
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []float64{0, 60, 120} {
			if r, err := p.Publish(t.Context()); err != nil || !errors.Is(r.Sources[1].Err, manifest.ErrNotInitialized) {
				t.Fatal(r, err)
			}
			want(t, reg, 1, "fencepost_delta_refused_sources")
			want(t, reg, after, "fencepost_delta_lag_seconds")
			time.Sleep(time.Minute)
		}
	})
}

// Rounds that fail, conflicts and foreign objects are counted. The end of the publisher is no failure.
func TestRounds(t *testing.T) {
	m, reg := newMetrics(t)
	var foreign []delta.Foreign
	h := m.Publisher(delta.Hooks{Foreign: func(f delta.Foreign) { foreign = append(foreign, f) }})
	h.Round(delta.Round{Report: delta.Report{Version: -1, Tries: 2}, Err: errors.New("the store is away")})
	h.Round(delta.Round{Report: delta.Report{Version: -1}, Err: fmt.Errorf("stopped: %w", context.Canceled)})
	h.Foreign(delta.Foreign{Key: "x"})
	want(t, reg, 0, "fencepost_delta_round_seconds")
	want(t, reg, 2, "fencepost_delta_conflicts_total")
	want(t, reg, 1, "fencepost_delta_foreign_total")
	if len(foreign) != 1 {
		t.Errorf("%v", foreign)
	}
	// A log that was taken out of the table is not late.
	h.Round(delta.Round{Report: delta.Report{Version: 4, Sources: []delta.SourceReport{{Edits: 7, Published: 2, Err: delta.ErrUnpublished}}}})
	want(t, reg, 0, "fencepost_delta_refused_sources")
	want(t, reg, 0, "fencepost_delta_behind_edits")
	want(t, reg, 4, "fencepost_delta_version")
}

func TestOptions(t *testing.T) {
	if _, err := deltahooks.New(nil, nil); !errors.Is(err, deltahooks.ErrOptions) {
		t.Error(err)
	}
	_, reg := newMetrics(t)
	if _, err := deltahooks.New(reg, nil); err == nil || !strings.Contains(err.Error(), "WrapRegistererWith") {
		t.Error(err)
	}
}

// The list in docs/metrics.md is what is exported: go test -run Table -write writes it.
func TestTable(t *testing.T) {
	const page, begin, end = "../../../docs/metrics.md", "<!-- delta: written by a test -->\n", "<!-- end of delta -->\n"
	_, reg := newMetrics(t)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	var rows []string
	for _, f := range families {
		// The page says which type follows from a name, and which labels are common.
		more, kind := "", f.GetType().String()
		if strings.HasSuffix(f.GetName(), "_seconds") && kind == "GAUGE" {
			more += " A gauge."
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() != "election" && !strings.Contains(f.GetHelp(), "by "+l.GetName()) {
				labels = append(labels, l.GetName())
			}
		}
		if len(labels) > 0 {
			more += " Labels: " + strings.Join(labels, ", ") + "."
		}
		switch {
		case strings.HasSuffix(f.GetName(), "_total") != (kind == "COUNTER"), kind == "HISTOGRAM" && !strings.HasSuffix(f.GetName(), "_seconds"):
			t.Errorf("%s is a %s, which its name does not say", f.GetName(), kind)
		}
		rows = append(rows, fmt.Sprintf("- `%s`: %s%s", f.GetName(), f.GetHelp(), more))
	}
	slices.Sort(rows)
	doc, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table: %q", page, begin)
	}
	switch now := "\n" + strings.Join(rows, "\n") + "\n\n"; {
	case table == now:
	case *write:
		if err := os.WriteFile(page, []byte(before+begin+now+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not list what is exported; run go test -run TestTable -write in promhooks/deltahooks", page)
	}
}
