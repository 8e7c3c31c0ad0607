package main

import (
	"fmt"
	"testing"
)

// TestShares: each guard is in one share, and the shares are about as large as each other.
func TestShares(t *testing.T) {
	var all []guard
	for i := range 10 {
		all = append(all, guard{name: fmt.Sprint(i)})
	}
	seen := map[string]int{}
	for k := range 3 {
		part, err := partOf(all, fmt.Sprintf("%d/3", k+1))
		if err != nil || len(part) < 3 || len(part) > 4 {
			t.Errorf("share %d has %d guards, %v; want 3 or 4", k+1, len(part), err)
		}
		for _, g := range part {
			seen[g.name]++
		}
	}
	if len(seen) != 10 || seen["0"] != 1 {
		t.Errorf("the shares have %v, want each of 10 once", seen)
	}
	for _, bad := range []string{"0/3", "4/3", "x", "2"} {
		if _, err := partOf(all, bad); err == nil {
			t.Errorf("-share %s was taken", bad)
		}
	}
}
