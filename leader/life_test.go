package leader

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
)

// TestLife runs the scripts of testdata/life, each a term.
func TestLife(t *testing.T) {
	datadriven.RunTest(t, "testdata/life", func(t *testing.T, d *datadriven.TestData) string {
		var l life
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			next := nothing
			switch act := strings.Fields(line); act[0] {
			case "begin":
				l.begin()
			case "end":
				next = l.end()
			case "leave":
				drain, err := time.ParseDuration(act[1])
				if err != nil {
					t.Fatalf("%s: %v", d.Pos, err)
				}
				var why error
				if len(act) > 2 {
					why = context.Canceled
				}
				next = l.leave(drain, why)
			}
			fmt.Fprintf(&b, "%-16s → %s; drain %v, why %v\n", strings.TrimSpace(line), next, l.drain, l.why)
		}
		return b.String()
	})
}
