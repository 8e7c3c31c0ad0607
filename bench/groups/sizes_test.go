package groups

import (
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/bench/result"
)

// assign runs tests of package assign, which can make assignments with any history, and returns what they
// print.
func assign(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-count=1", "-v"}, append(args, "./internal/assign")...)...)
	cmd.Dir = "../../ext/group"
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// How large the assignment of 100,000 partitions becomes.
func TestSizes(t *testing.T) {
	tests := "^TestSize"
	if !inFull() {
		tests = "^TestSizeAfterLongHistories$" // the fast one
	}
	line := regexp.MustCompile(`(?m)size_test\.go:\d+: (.*?) +(\d+) bytes, (\d+) members`)
	largest := map[string]int{}
	var order []string
	for _, m := range line.FindAllStringSubmatch(assign(t, "-run="+tests), -1) {
		members, size := 100, 0
		fmt.Sscan(m[3], &members)
		fmt.Sscan(m[2], &size)
		what := "joins, ends and requests of 100 rounds"
		if _, moves, ok := strings.Cut(m[1], " members, "); ok {
			what = strings.TrimSuffix(moves, ", half leave") // the same history, and one change more
		}
		n := 1000
		if members <= 200 {
			n = 100
		}
		name := fmt.Sprintf("100,000 partitions, %s members: KB of an assignment after %s", result.Number(float64(n)), what)
		if _, seen := largest[name]; !seen {
			order = append(order, name)
		}
		largest[name] = max(largest[name], size)
	}
	if len(order) == 0 {
		t.Fatal("package assign prints no sizes")
	}
	for _, name := range order {
		goal := 300.0
		if strings.Contains(name, "1,000 members") {
			goal = 600
		}
		add(t, result.Row{Name: name, Value: float64(largest[name]) / 1000, Goal: goal, Ratio: true})
	}
}

// What a look takes of the processor.
func TestLook(t *testing.T) {
	times := "1s"
	if !inFull() {
		times = "1x"
	}
	line := regexp.MustCompile(`BenchmarkLook/(\S+?)(?:-\d+)? .*?([\d.]+) cpu-ms/op`)
	found := line.FindAllStringSubmatch(assign(t, "-run=^$", "-bench=BenchmarkLook", "-benchtime="+times), -1)
	if len(found) == 0 {
		t.Fatal("package assign prints no times")
	}
	for _, m := range found {
		ms, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		add(t, result.Row{Name: "100,000 partitions, 1,000 members: ms of a processor, " + m[1], Value: ms, Goal: 50})
	}
}
