package writer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/fencepost/fencepost/fence"
)

// TestLife runs the scripts of testdata/life. A line is a transition with its reason; each script is
// one life.
func TestLife(t *testing.T) {
	reasons := map[string]error{
		"closed":  ErrClosed,
		"denied":  errors.New("denied"),
		"fenced":  &fence.FencedError{Epoch: 1, By: 2},
		"unknown": unknown(errors.New("cut off")),
		"void":    notCommitted(ErrClosed),
		// The cause of a context may be that a compactor was fenced.
		"told": fmt.Errorf("%w: %w", ErrClosed, &fence.FencedError{Role: "compactor", Epoch: 1, By: 2}),
	}
	name := func(err error) string {
		for n, r := range reasons {
			if err == r { //nolint:errorlint // the very one
				return n
			}
		}
		return "-"
	}
	datadriven.RunTest(t, "testdata/life", func(t *testing.T, d *datadriven.TestData) string {
		var l life
		var b strings.Builder
		for line := range strings.Lines(d.Input) {
			var act, why string
			if _, err := fmt.Sscan(line, &act, &why); err != nil {
				t.Fatalf("%s: %q", d.Pos, line)
			}
			what := ""
			switch act {
			case "shut":
				if l.shut(reasons[why]) {
					what = "; the first"
				}
			case "halt":
				if first := l.shut(reasons[why]); l.halt(reasons[why]) {
					what = fmt.Sprintf("; the first, and shut it: %v", first)
				}
			case "fail":
				l.fail(reasons[why])
			case "void":
				var slot uint64
				fmt.Sscan(why, &slot)
				l.voidFrom(slot)
			}
			fmt.Fprintf(&b, "%-12s → err %s, stop %s, void %d, failed %s%s\n", strings.TrimSpace(line), name(l.err), name(l.stop), l.void, name(l.failed), what)
		}
		return b.String()
	})
}
