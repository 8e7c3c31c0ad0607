package outside_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/outside"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
)

var write = flag.Bool("write", false, "write the table in docs/metrics.md")

const doc = "../../../../docs/metrics.md"

// process is the identity of a process on one machine, as leader.DefaultIdentity makes it: no label has it.
func process(n int) string { return fmt.Sprintf("vm/%d/3528b946-f536-4bd4-a712-8a66dcabd9%02d", n, n) }

// The list in docs/metrics.md is what is exported: go test -run Table -write writes it.
func TestTable(t *testing.T) {
	now := time.Unix(1e9, 0)
	states := []outside.State{{URL: "a", Asked: now, Log: &outside.Log{
		Read:  outside.Parts{Leader: true, Manifest: true, Tail: true, Compactor: true, Pins: true, PinVersions: true},
		Terms: []survey.Term{{Epoch: 2, Holder: process(3), State: "held", Leads: true, From: now}}, Log: survey.Log{
			Compactor: survey.Term{Epoch: 1, State: "expired"}, Unfolded: &survey.Unfolded{Objects: 3},
			Look: inspect.Look{Tail: fence.Position{Epoch: 2, Seq: 4}, LastAt: now, End: 10, State: inspect.State{FloorOffset: 4, Edits: 9}},
		},
		Manifests: []outside.Manifest{{Version: 7, Written: now}}, PinCount: 2, Pins: []outside.Pin{{Holder: "x", Version: 3}, {Holder: "y", Version: 1, Expired: true}},
		Published: &outside.Published{Version: 6, Edits: 8, At: now},
	}}, {URL: "b", Err: "away", Group: &outside.Group{Group: survey.Group{
		Partitions: 3, Unowned: []int{1}, Moving: []int{1}, Members: []survey.Member{{Name: "m", Identity: process(1), Owned: 2, State: "live"}, {Name: "n", Identity: process(2), Owned: 1, State: "lapsed"}},
	}}}, {URL: "c", Lock: &outside.Lock{Terms: []survey.Term{{Epoch: 5, Holder: "cat", State: "held", Leads: true, From: now, To: now, Until: now.Add(15 * time.Second)}}}},
		{URL: "d", Lock: &outside.Lock{Complete: true}},
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(outside.CollectorOf(states))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := promlint.NewWithMetricFamilies(families).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	rows, values := []string{}, map[string]float64{}
	for _, f := range families {
		labels := map[string]bool{}
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = true
				key += " " + l.GetValue()
			}
			values[key] = m.GetGauge().GetValue()
		}
		// The page says of all that they are gauges with the label url.
		more := ""
		if names := slices.DeleteFunc(slices.Sorted(maps.Keys(labels)), func(l string) bool { return l == "url" }); len(names) > 0 {
			more = " Labels: " + strings.Join(names, ", ") + "."
		}
		rows = append(rows, fmt.Sprintf("- `%s`: %s%s", f.GetName(), f.GetHelp(), more))
	}
	for key, want := range map[string]float64{
		"fencepost_watch_up a": 1, "fencepost_watch_up b": 0, "fencepost_log_leader_leads a": 1, "fencepost_log_leader_epoch a": 2, "fencepost_log_leader_info vm a": 1,
		"fencepost_log_compactor_leads a": 0, "fencepost_log_unfolded_records a": 6, "fencepost_log_unfolded_objects a": 3, "fencepost_log_oldest_pin_version a": 3, "fencepost_log_pins a": 2,
		"fencepost_partitions_unowned b": 1, "fencepost_partitions_owned vm b": 3, "fencepost_members lapsed b": 1, "fencepost_members live b": 1,
		"fencepost_lock_leader_leads c": 1, "fencepost_lock_leader_epoch c": 5, "fencepost_lock_leader_info cat c": 1, "fencepost_lock_leader_acquired_timestamp_seconds c": 1e9,
		"fencepost_lock_leader_until_timestamp_seconds c": 1e9 + 15, "fencepost_lock_leader_leads d": 0, "fencepost_watch_up d": 1,
		"fencepost_log_edits a": 9, "fencepost_log_published_version a": 6, "fencepost_log_published_edits a": 8, "fencepost_log_published_timestamp_seconds a": 1e9,
	} {
		if got, ok := values[key]; !ok || got != want {
			t.Errorf("%s is %v (%v), want %v", key, got, ok, want)
		}
	}
	const begin, end = "<!-- exporter: written by a test -->\n", "<!-- end of exporter -->\n"
	b, err := os.ReadFile(doc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), begin)
	table, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", doc)
	}
	fresh := "\n" + strings.Join(rows, "\n") + "\n\n"
	switch {
	case table == fresh:
	case *write:
		if err := os.WriteFile(doc, []byte(before+begin+fresh+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not list what is exported; run go test -run TestTable -write in cmd/fencepost/internal/outside", doc)
	}
}

// TestUnreadParts: what was not read is left out. A lock that was listed and not read is not nobody's.
func TestUnreadParts(t *testing.T) {
	pins, unread := []outside.Pin{{Holder: "x", Version: 3}, {}}, []survey.Term{{Epoch: 3}, {Epoch: 2, State: "expired"}}
	for name, c := range map[string]struct {
		state outside.State
		want  []string // beside the number of requests
	}{
		"nothing":  {outside.State{}, nil},
		"failed":   {outside.State{Err: "away"}, []string{"watch_up"}},
		"leader":   {outside.State{Log: &outside.Log{Read: outside.Parts{Leader: true}}}, []string{"watch_up", "log_leader_leads", "log_leader_epoch"}},
		"listed":   {outside.State{Log: &outside.Log{Terms: unread, Complete: true, Read: outside.Parts{Leader: true}}}, []string{"watch_up"}},
		"lock":     {outside.State{Lock: &outside.Lock{Terms: unread, Complete: true}}, []string{"watch_up"}},
		"one pin":  {outside.State{Log: &outside.Log{Pins: pins, PinCount: 2, Read: outside.Parts{Pins: true}}}, []string{"watch_up", "log_pins"}},
		"all pins": {outside.State{Log: &outside.Log{Pins: pins[:1], PinCount: 1, Read: outside.Parts{Pins: true, PinVersions: true}}}, []string{"watch_up", "log_pins", "log_oldest_pin_version"}},
	} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(outside.CollectorOf([]outside.State{c.state}))
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"fencepost_watch_requests_total"}
		for _, w := range c.want {
			want = append(want, "fencepost_"+w)
		}
		var got []string
		for _, f := range families {
			got = append(got, f.GetName())
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
