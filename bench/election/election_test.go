package election

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"text/tabwriter"
	"time"
)

var write = flag.Bool("write", false, "write the results to ../results/election.json")

const resultsFile = "../results/election.json"

// report is the content of the results file.
type report struct {
	Date      string             `json:"date"`
	Platform  string             `json:"platform"`
	Versions  map[string]string  `json:"versions"`
	Setting   string             `json:"setting"`
	Elections map[string]*result `json:"elections"`
	Check     *check             `json:"term_check"`
}

func TestElection(t *testing.T) {
	r := &report{
		Date: time.Now().UTC().Format(time.DateOnly), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Versions: versions(t), Elections: map[string]*result{}, Check: measureCheck(t),
		Setting: fmt.Sprintf("virtual time, validity %v, requests take 0 to %v, clocks honest", validity, maxDelay),
	}
	for _, c := range contenders {
		t.Run(c.name, func(t *testing.T) {
			m := &result{Crash: crash(t, c), HandOver: handOver(t, c, toldToEnd), Cut: partition(t, c), Requests: steady(t, c)}
			if c.releases {
				m.Graceful = graceful(t, c)
			}
			if c.returns {
				m.Resigns, m.Returns = handOver(t, c, resigns), handOver(t, c, returns)
			}
			r.Elections[c.name] = m
		})
	}
	if t.Failed() || len(r.Elections) < len(contenders) {
		return // -run has left some out
	}
	var table strings.Builder
	missed := r.table(&table)
	t.Logf("%s, %s, %v\n%s\n\n%s", r.Date, r.Platform, r.Versions, r.Setting, table.String())
	for _, m := range missed {
		t.Error(m)
	}
	if *write {
		if len(contenders) == 1 {
			t.Fatal("nothing is written without client-go; add -tags clientgo")
		}
		body, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(resultsFile, append(body, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// versions reads the versions from go.mod, because a test's build information has none.
func versions(t *testing.T) map[string]string {
	t.Helper()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	const path = "k8s.io/client-go"
	m := regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(path) + ` (\S+)`).FindSubmatch(mod)
	if m == nil {
		t.Fatalf("go.mod has no %s", path)
	}
	return map[string]string{"go": runtime.Version(), path: string(m[1])}
}

// table prints a line for each measure. It returns the goals that package leader has
// missed.
func (r *report) table(out *strings.Builder) (missed []string) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprint(w, "measure\tgoal")
	for _, c := range contenders {
		fmt.Fprintf(w, "\t%s", c.name)
	}
	fmt.Fprintln(w)
	row := func(name string, goal float64, value func(*result) float64) { // NaN: not measured
		limit := fmt.Sprintf("≤ %g", goal)
		if math.IsInf(goal, 1) {
			limit = "none"
		}
		fmt.Fprintf(w, "%s\t%s", name, limit)
		for i, c := range contenders {
			v := value(r.Elections[c.name])
			if math.IsNaN(v) {
				fmt.Fprint(w, "\t–")
				continue
			}
			fmt.Fprintf(w, "\t%.2f", v)
			if i == 0 && v > goal {
				missed = append(missed, fmt.Sprintf("%s: %.3f, but the goal is %g", name, v, goal))
			}
		}
		fmt.Fprintln(w)
	}
	none := math.NaN()
	or := func(s *spread) *spread { return cmp.Or(s, &spread{P50: none, P99: none, Max: none}) }
	graceful := func(m *result) *spread { return or(m.Graceful) }
	row("crash to the next leader, in validities: p50", 1, func(m *result) float64 { return m.Crash.P50 })
	row("  p99", 1.15, func(m *result) float64 { return m.Crash.P99 })
	row("  max", 1.15, func(m *result) float64 { return m.Crash.Max })
	row("release to the next leader, in seconds: p50", 0.5, func(m *result) float64 { return graceful(m).P50 })
	row("  p99", 1, func(m *result) float64 { return graceful(m).P99 })
	row("  max", 1, func(m *result) float64 { return graceful(m).Max })
	row("told to end: its work's end to the next leader, in seconds: p50", 0.3, func(m *result) float64 { return m.HandOver.P50 })
	row("  p99", 1, func(m *result) float64 { return m.HandOver.P99 })
	row("  max", 1, func(m *result) float64 { return m.HandOver.Max })
	row("resigns, and works on until its term is over: likewise: p50", 0.3, func(m *result) float64 { return or(m.Resigns).P50 })
	row("  p99", 1, func(m *result) float64 { return or(m.Resigns).P99 })
	row("  max", 1, func(m *result) float64 { return or(m.Resigns).Max })
	row("its work returns, unannounced: likewise: p50", math.Inf(1), func(m *result) float64 { return or(m.Returns).P50 })
	row("  p99", math.Inf(1), func(m *result) float64 { return or(m.Returns).P99 })
	row("  max", math.Inf(1), func(m *result) float64 { return or(m.Returns).Max })
	row(fmt.Sprintf("two leaders at once, in %d partitions", partitions), 0, func(m *result) float64 { return float64(m.Cut.Two) })
	row("  for how long, in seconds: p50", 0, func(m *result) float64 { return m.Cut.Median })
	row("  max", 0, func(m *result) float64 { return m.Cut.Longest })
	row("leader: writes a minute", 12, func(m *result) float64 { return m.Requests.LeaderWrites })
	row("leader: reads a minute", 0, func(m *result) float64 { return m.Requests.LeaderReads })
	row("follower: requests a minute", 12, func(m *result) float64 { return m.Requests.Follower })
	row("observer: requests a minute", 6, func(m *result) float64 { return *cmp.Or(m.Requests.Observer, &none) })
	_ = w.Flush()
	fmt.Fprintf(out, "\nTerm.Check takes %.0f ns, Term.Remaining %.0f ns, %.0f allocations (goal 300 and 0), "+
		"%.2f and %.2f of a clock_gettime(CLOCK_BOOTTIME)\n", r.Check.Check, r.Check.Remaining, r.Check.Allocs,
		r.Check.Check/r.Check.SystemCall, r.Check.Remaining/r.Check.SystemCall)
	return missed
}
