//go:build engines && unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestEngines: delta-rs, Polars and DuckDB read the table of the story. They count what Kafka has
// acknowledged.
func TestEngines(t *testing.T) {
	python := os.Getenv("FENCEPOST_ENGINES")
	if python == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("FENCEPOST_ENGINES is not set: run make engines, which installs delta-rs, Polars and DuckDB")
		}
		t.Skip("delta-rs, Polars and DuckDB are not there: run make engines")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	brokers, stop, err := embedded()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	dir := t.TempDir()
	s, err := newStory(ctx, config{brokers: brokers, store: "file://" + dir, partitions: 4, rate: 2000}, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	s.self = build(t)
	t.Cleanup(s.stop)
	if err := s.told(s.acts(ctx)); err != nil {
		t.Fatal(err)
	}
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

	cmd := exec.CommandContext(ctx, python, "engines.py", filepath.Join(dir, s.topic, "table"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	got := map[string][4]int64{}
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, name := range []string{"delta-rs", "polars", "duckdb"} {
		if got[name] != want {
			t.Errorf("%s finds %v (rows, places, sum of offsets, bytes), want %v", name, got[name], want)
		}
	}
	t.Logf("each engine finds %d messages", s.ledger.n)
}
