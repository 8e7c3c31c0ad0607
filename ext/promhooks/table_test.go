package promhooks_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/ext/promhooks"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

var write = flag.Bool("write", false, "write the table in docs/metrics.md")

const page = "../../docs/metrics.md"

// every is a registry in which each metric has a value.
func every(t *testing.T) *prometheus.Registry {
	m, reg := newMetrics(t, &promhooks.Options{Prices: &promhooks.Prices{Put: 5}})
	st := m.Store(memstore.New(nil))
	_, _ = st.Put(t.Context(), "a", []byte("1"), nil)
	if obj, err := st.Get(t.Context(), "a", nil); err == nil {
		_, _ = obj.Body.Read(make([]byte, 1))
		_ = obj.Body.Close()
	}
	m.Leader("log", leader.Hooks{}).Heartbeat(leader.Heartbeat{})
	m.Writer(writer.Hooks{}).Acknowledged(writer.Acknowledgement{})
	m.Reader(reader.Hooks{}).Tail(reader.Tail{})
	m.Compactor(compactor.Hooks{}).Passed(compactor.Pass{Report: compactor.Report{Pruned: map[string]int{"data": 1}}})
	m.Group(group.Hooks{}).Opened(group.Opening{})
	return reg
}

// The list in docs/metrics.md is what is exported: go test -run Table -write writes it.
func TestTable(t *testing.T) {
	families, err := every(t).Gather()
	if err != nil {
		t.Fatal(err)
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
	const begin, end = "<!-- hooks: written by a test -->\n", "<!-- end of hooks -->\n"
	doc, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(doc), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table: %q", page, begin)
	}
	now := "\n" + strings.Join(rows, "\n") + "\n\n"
	if table == now {
		return
	}
	if *write {
		if err := os.WriteFile(page, []byte(before+begin+now+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("%s does not list what is exported; run go test -run TestTable -write in promhooks", page)
}

// The names and units are those that Prometheus recommends.
func TestNames(t *testing.T) {
	families, err := every(t).Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "fencepost_") {
			t.Errorf("%s does not begin with fencepost_", f.GetName())
		}
	}
}
