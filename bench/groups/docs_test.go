package groups

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/bench/result"
)

// What docs/groups.md says of the measures is what the page of results has.
func TestDocsHaveTheNumbers(t *testing.T) {
	if inFull() {
		t.Skip("the page is being made")
	}
	p, err := result.Read("../results", "groups")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/groups.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(name string) result.Row {
		for _, r := range p.Rows {
			if r.Name == name {
				return r
			}
		}
		t.Errorf("the page has no row %q", name)
		return result.Row{}
	}
	v := func(name string) float64 { return row(name).Value }
	says := func(format string, values ...any) {
		t.Helper()
		if s := fmt.Sprintf(format, values...); !strings.Contains(string(doc), s) {
			t.Errorf("docs/groups.md does not say %q", s)
		}
	}
	crash := func(who, q string) float64 {
		return v("crash of " + who + ", of 100 that share 10,000 partitions, without an owner: " + q + ", in validities")
	}
	says("p50 %.2f, p99 %.2f validities without an owner; one assignment. Of the organiser %.2f and %.2f, of its deputy %.2f and %.2f",
		crash("another worker", "p50"), crash("another worker", "p99"), crash("the organiser", "p50"), crash("the organiser", "p99"), crash("its deputy", "p50"), crash("its deputy", "p99"))
	rolling := "rolling restart of 10 workers, 1,000 partitions: "
	says("p50 %.1f s, p99 %.1f s; each partition moved %.0f times", v(rolling+"seconds without an owner, p50"), v(rolling+"p99"), v(rolling+"moves of a partition, at most"))
	says("%.0f partitions moved, with one assignment", v("a worker joins 100 that share 10,000: partitions that move"))
	many := "1,000 workers, 10,000 partitions"
	says("everything is owned after %.2f validities, with %.0f assignments", v(many+", all join at once: validities until everything is owned"), v(many+", all join at once: assignments"))
	frozen := many + ", all are frozen for a minute: "
	says("everything is owned %.2f validities after they wake, with %.0f assignments and %.0f requests of each",
		v(frozen+"validities until everything is owned"), v(frozen+"assignments"), v(frozen+"requests of each until everything is owned"))
	says("the last one has left after %.1f s; one that joins then owns everything after %.2f validities",
		15*v(many+": validities until the last one has left"), v(many+", all have left, and one joins: validities until it owns all"))
	down := "100 workers, 10,000 partitions, all leave one by one: "
	says("p50 %.2f s, p99 %.2f s", v(down+"seconds without an owner, p50"), v(down+"p99"))
	look := "100,000 partitions, 1,000 members: ms of a processor, "
	says("%.1f ms of a processor to read it, %.1f to %.0f ms to make the next one, and %.0f ms to encode that",
		v(look+"decode"), v(look+"plan-nothing"), v(look+"plan-all-given-up"), v(look+"encode"))
	idle := "a process that owns 1,000 idle partitions, on a directory: MiB "
	says("%.0f MiB of heap and stacks, and %.0f MiB in RAM for the whole process", v(idle+"of live heap and stacks"), v(idle+"in RAM, the whole process"))
	median := func(of string, validity float64) float64 {
		return validity * v(of+": crash of one of 10 workers, 100 partitions, without an owner: p50, in validities")
	}
	says("for %.1f, %.1f and %.1f s (medians), and for %.1f s in a group", median("a lease for each partition, package leader", 15),
		median("the cadence of the Kinesis client", 10), median("the cadence of Azure's event processor", 60), 15*crash("another worker", "p50"))
	for _, ranges := range []int{1, 4} {
		for _, what := range []string{"a new group", "half of the workers crash", "all stop, and start again"} {
			name := fmt.Sprintf("10,000 logs, 20 workers, a store with %d × 3,500 writes and 5,500 reads a second, %s: ", ranges, what)
			r := row(name + "seconds until all are open")
			var requests, refused float64
			if _, err := fmt.Sscanf(r.Note, "%f requests for each log, %f %% of all", &requests, &refused); err != nil {
				t.Errorf("%q: %v", r.Note, err)
			}
			says("| %s | %d | %.1f s | %.1f | %.0f %% | %.0f |", what, ranges, r.Value, requests, refused, v(name+"sessions that were lost"))
		}
	}
}
