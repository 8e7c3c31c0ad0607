package group

import (
	"strings"
	"testing"
)

func TestRuns(t *testing.T) {
	for want, ps := range map[string][]int{"": nil, "3": {3}, "0-2": {0, 1, 2}, "0-1, 3, 5-6": {0, 1, 3, 5, 6}, "0, 2, 4, 6, …": {0, 2, 4, 6, 8, 10}} {
		if got := runs(ps); got != want {
			t.Errorf("%v: %q, want %q", ps, got, want)
		}
	}
	if got := data("a\tb\n" + strings.Repeat("x", 50)); got != `a\tb\n`+strings.Repeat("x", 33)+"…" {
		t.Errorf("data is %q", got)
	}
}
