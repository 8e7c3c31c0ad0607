package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"
)

// measures are those of the writer's page, in the order of the table.
var measures = []struct {
	name string
	run  func(context.Context, *report) error
}{
	{"requests", requests},
	{"throughput", throughput},
	{"folder", folder},
	{"latency", latency},
	{"serial", serial},
	{"grouping", grouping},
	{"processor", processor},
	{"memory", memory},
	{"opening", opening},
	{"outrun", outrun},
	{"backlog", backlog},
}

// tests are the pages that tests make, of which some need virtual time.
var tests = []struct {
	name string
	args []string
}{
	{"opening", []string{"-run", "^TestOpening$", "."}},
	{"history", []string{"./history"}},
	{"servers", []string{"-run", "^TestServers$", "."}},
}

func main() {
	check := flag.Bool("check", false, "write nothing; exit with status 1 if a ratio is more than 10 % worse than in the results that are there, or a row of them is gone")
	only := flag.String("only", "", "measure only these, or these pages (writer, opening, history, servers), separated by commas; write the pages that are whole")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	worse, err := run(ctx, *only, *check)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if worse {
		os.Exit(1)
	}
}

// results is the folder of the results.
const results = "results"

func run(ctx context.Context, only string, check bool) (worse bool, err error) {
	chosen := strings.FieldsFunc(only, func(r rune) bool { return r == ',' })
	want := func(name string) bool { return only == "" || slices.Contains(chosen, name) }
	r, made := writerReport(), 0
	for _, m := range measures {
		if !want(m.name) && !want("writer") {
			continue
		}
		start := time.Now()
		if err := m.run(ctx, r); err != nil {
			return false, fmt.Errorf("%s: %w", m.name, err)
		}
		made++
		took(m.name, start)
	}
	if made > 0 {
		fmt.Print(r.Table())
		whole := made == len(measures)
		switch {
		case check:
			if worse, err = r.Worse(os.Stdout, results, whole); err != nil {
				return false, err
			}
		case whole:
			if err := r.Write(results); err != nil {
				return false, err
			}
		}
	}
	for _, t := range tests {
		if !want(t.name) {
			continue
		}
		start := time.Now()
		mode := map[bool]string{true: "check", false: "write"}[check]
		cmd := exec.CommandContext(ctx, "go", append(append([]string{"test", "-count=1", "-timeout=30m", "-v"}, t.args...), "-measure="+mode)...)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		var exit *exec.ExitError
		if err := cmd.Run(); errors.As(err, &exit) && check {
			worse = true
		} else if err != nil {
			return false, fmt.Errorf("%s: %w", t.name, err)
		}
		took(t.name, start)
	}
	return worse, nil
}

func took(name string, start time.Time) {
	fmt.Fprintf(os.Stderr, "%s took %v\n", name, time.Since(start).Round(time.Millisecond))
}
