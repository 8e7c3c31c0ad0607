package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

// measures are all there are, in the order of the table.
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

func main() {
	check := flag.Bool("check", false, "write nothing; exit with status 1 if a ratio is more than 10 % worse than in the results that are there")
	only := flag.String("only", "", "measure only these, separated by commas; write nothing")
	dir := flag.String("results", "results", "the folder of the results")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	worse, err := run(ctx, *dir, *only, *check)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if worse {
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, only string, check bool) (worse bool, err error) {
	r := writerReport()
	for _, m := range measures {
		if only != "" && !strings.Contains(","+only+",", ","+m.name+",") {
			continue
		}
		start := time.Now()
		if err := m.run(ctx, r); err != nil {
			return false, fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(os.Stderr, "%s took %v\n", m.name, time.Since(start).Round(time.Millisecond))
	}
	fmt.Print(r.table())
	switch {
	case check:
		return r.worse(os.Stdout, dir)
	case only != "":
		return false, nil
	}
	return false, r.write(dir)
}
