//go:build engines && unix

package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestEngines: delta-rs, Polars and DuckDB read the table of the story. They count what Kafka has
// acknowledged.
func TestEngines(t *testing.T) {
	if os.Getenv("FENCEPOST_ENGINES") == "" {
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
	s.engines(ctx, t, filepath.Join(dir, s.topic, "table"), nil)
}
