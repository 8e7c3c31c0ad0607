package history

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/sim"
)

// made is the output of a process that makes histories.
type made struct {
	Histories, Acts int
	CPU             time.Duration
}

// TestHistories measures how many histories of the simulation two processors make and
// check in a second. A process has one thread, like those of make sim. Its processor time
// counts, so other load on the machine does not matter.
func TestHistories(t *testing.T) {
	n := 20
	if inFull() {
		n = 1000
	}
	const told = "MADE "
	if os.Getenv(role) == historians {
		var m made
		sim.Run(t, sim.NewPlan(1)) // make what is made only once
		began := cpuTime()
		for seed := range uint64(n) {
			r := sim.Run(t, sim.NewPlan(seed))
			if r.Err != nil {
				t.Errorf("seed %d: %v", seed, r.Err)
			}
			m.Histories, m.Acts = m.Histories+1, m.Acts+r.Steps
		}
		m.CPU = cpuTime() - began
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(told + string(b))
		return
	}
	cmd := self(t, historians, "GOMAXPROCS=1", "GOGC=800")
	cmd.Args = append(cmd.Args, "-test.run=^TestHistories$", "-results="+*results)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var m made
	for line := range strings.Lines(string(out)) {
		if text, ok := strings.CutPrefix(line, told); ok {
			err = json.Unmarshal([]byte(text), &m)
		}
	}
	if err != nil || m.Histories != n {
		t.Fatalf("%v\n%s", err, out)
	}
	if inFull() {
		each := m.CPU.Seconds() / float64(n)
		add(t, Row{Name: "simulation: whole histories a second on 2 processors", Value: 2 / each, Goal: 200, More: true,
			Note: fmt.Sprintf("%.2f ms of processor time for each of %d, %d acts in the mean", each*1000, n, m.Acts/n)})
	}
}
