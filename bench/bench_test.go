package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The number of requests is exact, whatever the machine does.
func TestRequestsPerCommit(t *testing.T) {
	r := writerReport()
	if err := requests(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, row := range r.Rows {
		if row.missed() || row.Value != row.Goal {
			t.Errorf("%s: %s, want %s", row.Name, number(row.Value), number(row.Goal))
		}
	}
}

// A ratio that is more than a tenth worse fails the check; other rows, and those
// that are new, do not.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	before := &report{name: "writer", Rows: []Row{
		{Name: "speed", Value: 1, More: true, Ratio: true},
		{Name: "cost", Value: 1, Ratio: true},
		{Name: "absolute", Value: 1e6, More: true},
	}}
	f := figure{title: "t", file: "f.svg", x: "x", y: "y"}
	f.line("a line", distribution([]time.Duration{1, 2, 3}))
	before.figures = append(before.figures, f)
	if err := before.write(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		row   Row
		worse bool
	}{
		{Row{Name: "speed", Value: 0.92, More: true, Ratio: true}, false},
		{Row{Name: "speed", Value: 0.90, More: true, Ratio: true}, true},
		{Row{Name: "cost", Value: 1.09, Ratio: true}, false},
		{Row{Name: "cost", Value: 1.11, Ratio: true}, true},
		{Row{Name: "absolute", Value: 1, More: true}, false},
		{Row{Name: "new", Value: 1, Ratio: true}, false},
	} {
		var out strings.Builder
		got, err := (&report{name: "writer", Rows: []Row{c.row}}).worse(&out, dir)
		if err != nil || got != c.worse || got != strings.Contains(out.String(), c.row.Name) {
			t.Errorf("%+v: worse is %t, %v: %q", c.row, got, err, out.String())
		}
	}
	svg, err := os.ReadFile(filepath.Join(dir, "f.svg"))
	if err != nil || !strings.Contains(string(svg), "a line") {
		t.Errorf("the figure has %d bytes, %v", len(svg), err)
	}
	if _, err := before.worse(os.Stdout, t.TempDir()); err == nil {
		t.Error("nothing to compare with, and that is no error")
	}
}
