package main

import (
	"testing"

	"github.com/fencepost/fencepost/bench/result"
)

// The number of requests is exact on every machine.
func TestRequestsPerCommit(t *testing.T) {
	r := writerReport()
	if err := requests(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.Missed() || row.Value != row.Goal {
			t.Errorf("%s: %s, want %s", row.Name, result.Number(row.Value), result.Number(row.Goal))
		}
	}
}
