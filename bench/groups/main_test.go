package groups

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/bench/result"
)

var (
	results = result.DirFlag()
	page    = result.New("Groups beside a lease for each partition", "groups")
)

// validity is what a group has by default.
const validity = 15 * time.Second

// role is what a process does that a test starts.
const role = "FENCEPOST_BENCH_ROLE"

func TestMain(m *testing.M) {
	flag.Parse()
	if os.Getenv(role) == "idle" {
		if err := idle(os.Stdout); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	page.Text = sources
	if inFull() {
		keepOthers()
	}
	os.Exit(m.Run())
}

// measures are the tests that make rows, in the order of the page.
var measures = []string{"TestSteady", "TestCrash", "TestRollingRestart", "TestJoin", "TestStorm", "TestScaleDown", "TestSizes", "TestLook", "TestRanges", "TestMemory", "TestLeases"}

// keepOthers keeps the rows of other measures that are in the folder already, so that the measures
// can be made one by one. All of them take many minutes.
func keepOthers() {
	if before, err := result.Read(*results, "groups"); err == nil {
		page.Rows = before.Rows
	}
}

// inFull reports whether the test measures all.
func inFull() bool { return *results != "" }

// size is full for the page, and small to see only that the measure works.
func size(full, small int) int {
	if inFull() {
		return full
	}
	return small
}

// add adds rows to the page. All are counts or virtual times, so they can be compared between
// machines.
func add(t *testing.T, rows ...result.Row) {
	t.Helper()
	for _, r := range rows {
		t.Logf("%-60s %10.3f  %s", r.Name, r.Value, r.Note)
	}
	if !inFull() {
		return
	}
	for _, r := range rows {
		page.Rows = slices.DeleteFunc(page.Rows, func(x result.Row) bool { return x.Name == r.Name })
		page.Add(t.Name(), r)
	}
	slices.SortStableFunc(page.Rows, func(a, b result.Row) int {
		return cmp.Compare(slices.Index(measures, a.By), slices.Index(measures, b.By))
	})
	// At once, so that nothing is lost if a long run is broken off.
	if err := page.Write(*results); err != nil {
		t.Error(err)
	}
}

// none is the goal of a row that has none.
const none = -1

// inValidities returns rows with quantiles of gaps.
func inValidities(what string, gaps []time.Duration, of time.Duration, p50, p99 float64) []result.Row {
	q := func(q float64) float64 { return float64(result.Quantile(gaps, q)) / float64(of) }
	note := fmt.Sprintf("longest %s, of %d", result.Number(q(1)), len(gaps))
	return []result.Row{
		{Name: what + ": p50, in validities", Value: q(0.5), Goal: p50, Ratio: true},
		{Name: what + ": p99, in validities", Value: q(0.99), Goal: p99, Ratio: true, Note: note},
	}
}
