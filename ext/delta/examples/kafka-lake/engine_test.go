//go:build (engines || kafka) && unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// engines lets delta-rs, Polars and DuckDB count and sum what is in the table, and Spark too where it is
// installed. env is what they need to reach it. It returns the names of those that have.
func (s *story) engines(ctx context.Context, t *testing.T, table string, env []string) (counted []string) {
	t.Helper()
	var offsets, bytes int64
	for _, all := range s.ledger.by {
		for offset := range all {
			offsets += offset
		}
	}
	for n := range s.ledger.n {
		bytes += int64(len(message(n).Value))
	}
	want := [4]int64{int64(s.ledger.n), int64(s.ledger.n), offsets, bytes}
	for _, p := range []struct {
		python string
		names  []string
	}{
		{os.Getenv("FENCEPOST_ENGINES"), []string{"delta-rs", "polars", "duckdb"}},
		{os.Getenv("FENCEPOST_SPARK"), []string{"spark"}},
	} {
		if p.python == "" {
			continue
		}
		cmd := exec.CommandContext(ctx, p.python, append([]string{"engines.py", table}, p.names...)...)
		// object_store takes an empty variable for a URL.
		cmd.Env = slices.DeleteFunc(append(os.Environ(), env...), func(kv string) bool { return strings.HasPrefix(kv, "AWS_") && strings.HasSuffix(kv, "=") })
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		got := map[string][4]int64{}
		if err == nil {
			err = json.Unmarshal(out, &got)
		}
		if err != nil {
			t.Fatalf("%v: %v\n%s", p.names, err, out)
		}
		for _, name := range p.names {
			if got[name] != want {
				t.Errorf("%s finds %v (rows, places, sum of offsets, bytes), want %v", name, got[name], want)
			}
		}
		t.Logf("%v: each finds %d messages, once", p.names, s.ledger.n)
		counted = append(counted, p.names...)
	}
	return counted
}
