package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test"
)

// A store that ignores conditions breaks promises, and the histories show it. The shrunk
// history is short, breaks the same promise and can be repeated.
func TestShrink(t *testing.T) {
	var full *Result
	for seed := uint64(1); full == nil && seed < 30; seed++ {
		p := NewPlan(seed)
		p.Careless = true
		if r := Run(t, p); r.Err != nil {
			full = r
		}
	}
	if full == nil {
		t.Fatal("no history noticed that the store ignores conditions")
	}
	want := full.kinds()[0]
	short := Shrink(t, full, test.Of(200, 400))
	t.Logf("from %d acts to %d:\n%s%v", len(full.acts), len(short.acts), short.Story, short.Err)
	if !slices.Contains(short.kinds(), want) || len(short.acts) > len(full.acts)/4 {
		t.Errorf("shrunk from %d acts to %d, which break: %v", len(full.acts), len(short.acts), short.Err)
	}
	if !strings.Contains(short.Story, "takes effect") {
		t.Error("the story does not tell what happened")
	}
	if again := replay(t, short.Plan, short.acts, false); !slices.Contains(again.kinds(), want) {
		t.Errorf("the repeated history breaks: %v", again.Err)
	}
}
