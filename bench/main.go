package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/bench/result"
)

type measure struct {
	name string
	run  func(context.Context, *report) error
}

// measures are those of the writer's page, in the order of the table.
var measures = []measure{
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

// page is made, or what some measures add to it if any are named, into a folder.
type page struct {
	name string
	make func(ctx context.Context, some []string, dir string) error
}

// Some pages are made by tests, of which some need virtual time.
var pages = []page{
	{"writer", measured},
	{"opening", tested(".", "TestOpening")},
	{"history", tested("./history", "Test.*")},
	{"servers", tested(".", "TestServers")},
}

// results is the folder of the results.
const results = "results"

// tries is how often something is measured before it counts as worse: what else a shared
// machine does takes a tenth off any ratio now and then, and hardly thrice.
const tries = 3

func main() {
	check := flag.Bool("check", false, "write nothing; exit with status 1 if a ratio, measured up to three times, is more than 10 % worse than in the results that are there, or a row of them is gone")
	only := flag.String("only", "", "make only these pages (writer, opening, history, servers), or measure only these for the writer's, which is then not kept; separated by commas")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	worse, err := run(ctx, strings.FieldsFunc(*only, func(r rune) bool { return r == ',' }), *check)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if worse {
		os.Exit(1)
	}
}

func run(ctx context.Context, only []string, check bool) (worse bool, err error) {
	var some []string // of the writer's measures
	for _, name := range only {
		switch {
		case slices.ContainsFunc(measures, func(m measure) bool { return m.name == name }):
			some = append(some, name)
		case !slices.ContainsFunc(pages, func(p page) bool { return p.name == name }):
			return false, fmt.Errorf("-only: there is no page and no measure %q", name)
		}
	}
	for _, p := range pages {
		var chosen []string // of the page's measures; nil is all
		if len(only) > 0 && !slices.Contains(only, p.name) {
			if chosen = some; p.name != "writer" || len(some) == 0 {
				continue
			}
		}
		start := time.Now()
		bad, err := p.finish(ctx, chosen, check)
		if err != nil {
			return false, fmt.Errorf("%s: %w", p.name, err)
		}
		worse = worse || bad
		took(p.name, start)
	}
	return worse, nil
}

// finish makes a page and prints it. Then it keeps the page, if that is whole, or compares
// it with the one that is kept.
func (p page) finish(ctx context.Context, some []string, check bool) (worse bool, err error) {
	tmp, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := p.make(ctx, some, tmp); err != nil {
		return false, err
	}
	table, err := os.ReadFile(filepath.Join(tmp, p.name+".md"))
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println(p.name + ": cannot be measured here, see above")
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fmt.Printf("%s", table)
	switch {
	case check:
		return p.worse(ctx, some, tmp)
	case some == nil:
		return false, keep(tmp)
	}
	return false, nil
}

// worse compares the page in dir with the one that is kept. It repeats the measures that
// have become worse: a row counts as worse if it is each time.
func (p page) worse(ctx context.Context, some []string, dir string) (bool, error) {
	before, err := result.Read(results, p.name)
	if err != nil {
		return false, fmt.Errorf("there is nothing to compare with: %w", err)
	}
	now, err := result.Read(dir, p.name)
	if err != nil {
		return false, err
	}
	for try := 1; ; try++ {
		says, by := now.Worse(before, some == nil)
		for _, s := range says {
			fmt.Println(s)
		}
		if len(says) == 0 || try == tries || slices.Contains(by, "") {
			return len(says) > 0, nil
		}
		fmt.Printf("measuring again, in case that was a bad moment of this machine: %s\n", strings.Join(by, ", "))
		if err := p.make(ctx, by, dir); err != nil {
			return false, err
		}
		again, err := result.Read(dir, p.name)
		if err != nil {
			return false, err
		}
		now.Best(again)
	}
}

// keep moves the files of a page to the results.
func keep(dir string) error {
	all, err := os.ReadDir(dir)
	for _, e := range all {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err := errors.Join(err, os.WriteFile(filepath.Join(results, e.Name()), b, 0o644)); err != nil {
			return err
		}
	}
	return err
}

// measured makes the page of the writer.
func measured(ctx context.Context, some []string, dir string) error {
	r := writerReport()
	for _, m := range measures {
		if some != nil && !slices.Contains(some, m.name) {
			continue
		}
		start := time.Now()
		r.by = m.name
		if err := m.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		took(m.name, start)
	}
	return r.Write(dir)
}

// tested has a page made by tests of a package, or by some of them.
func tested(pkg, all string) func(ctx context.Context, some []string, dir string) error {
	return func(ctx context.Context, some []string, dir string) error {
		which := all
		if some != nil {
			which = strings.Join(some, "|")
		}
		cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout=30m", "-v", "-run=^("+which+")$", pkg, "-results="+dir)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd.Run()
	}
}

func took(name string, start time.Time) {
	fmt.Fprintf(os.Stderr, "%s took %v\n", name, time.Since(start).Round(time.Millisecond))
}
