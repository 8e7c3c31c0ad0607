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
	{"https", https},
	{"opening", opening},
	{"outrun", outrun},
	{"backlog", backlog},
}

// page is a page and how to make it. make writes it to a folder; some, if not nil, names
// the measures to make.
type page struct {
	name string
	make func(ctx context.Context, some []string, dir string) error
}

// Some pages are made by tests, because some of them need virtual time.
var pages = []page{
	{"writer", measured},
	{"opening", tested(".", "TestOpening")},
	{"pacing", tested(".", "TestPacing")},
	{"history", tested("./history", "Test.*")},
	{"servers", tested(".", "TestServers")},
	{"groups", tested("./groups", "Test.*")},
	{"locks", tested("./locks", "Test.*")},
	{"push", tested("./push", "Test.*")},
	{"metering", metering},
}

// results is the folder of the results.
const results = "results"

// tries is how often a measure is made before it counts as worse. Other work on a shared
// machine takes a tenth off a ratio now and then, but hardly three times in a row.
const tries = 3

func main() {
	check := flag.Bool("check", false, "write nothing; exit with status 1 if a ratio is more than 10 % worse than in results/ in each of three tries, or if a row of results/ is missing")
	only := flag.String("only", "", "make only these `pages` (writer, opening, pacing, history, servers, groups, locks, push, metering), or only these measures of the writer's page, which is then not kept; separated by commas")
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
	var some []string // the named measures of the writer's page
	for _, name := range only {
		switch {
		case slices.ContainsFunc(measures, func(m measure) bool { return m.name == name }):
			some = append(some, name)
		case !slices.ContainsFunc(pages, func(p page) bool { return p.name == name }):
			return false, fmt.Errorf("-only: no page or measure is called %q", name)
		}
	}
	for _, p := range pages {
		var chosen []string // the page's measures; nil: all
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

// finish makes a page and prints it. With check it compares the page with the committed
// one. Otherwise it keeps the page if it is complete.
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
		fmt.Println(p.name + ": was not measured; the output above says why")
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

// worse compares the page in dir with the committed one. It repeats the measures that
// have become worse. A row counts as worse only if it is worse each time.
func (p page) worse(ctx context.Context, some []string, dir string) (bool, error) {
	before, err := result.Read(results, p.name)
	if err != nil {
		return false, fmt.Errorf("no results to compare with; run without -check first: %w", err)
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
		fmt.Printf("measuring again, in case other load on this machine was the cause: %s\n", strings.Join(by, ", "))
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

// keep copies the files of a page to the results.
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

// measured makes the writer's page.
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

// tested returns a function that makes a page by running tests of a package.
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
