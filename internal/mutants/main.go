package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/fencepost/fencepost/internal/clock"
)

var (
	list    = flag.Bool("list", false, "list the guards and what their mutants are, and run nothing")
	only    = flag.String("run", "", "only guards whose name this `regexp` matches")
	workers = flag.Int("p", 2, "mutants at once")
	then    = flag.String("then", "./internal/sim,.", "packages whose tests run when those of the guard's own let it live")
	timeout = flag.Duration("timeout", 2*time.Minute, "of one run of tests; a mutant that hangs is dead")
	verbose = flag.Bool("v", false, "print what the tests that failed print")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ok, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context) (ok bool, err error) {
	root, err := filepath.Abs(".")
	if err != nil {
		return false, err
	}
	if _, err := os.Stat("go.mod"); err != nil {
		return false, errors.New("run it in the root of the module: go run ./internal/mutants")
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return false, err
	}
	all, err := find(root)
	if err != nil {
		return false, err
	}
	var guards []guard
	for _, g := range all {
		if match.MatchString(g.name) {
			guards = append(guards, g)
		}
	}
	if len(guards) == 0 {
		return false, fmt.Errorf("no guard matches %q", *only)
	}
	if *list {
		ok := true
		w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
		for _, g := range guards {
			what := g.what
			if g.err != nil {
				ok, what = false, "NO MUTANT: "+g.err.Error()
			}
			fmt.Fprintf(w, "%s\t%s:%d\t%s\n", g.name, g.file, g.line, what)
		}
		return ok, w.Flush()
	}
	tmp, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	return judge(ctx, root, tmp, guards)
}

// judge runs the tests on every mutant and prints what became of it.
func judge(ctx context.Context, root, tmp string, guards []guard) (bool, error) {
	var mu sync.Mutex
	alive := 0
	var wg sync.WaitGroup
	work := make(chan int)
	for range *workers {
		wg.Go(func() {
			for i := range work {
				g, begun := guards[i], clock.System.Now()
				killer, err := kill(ctx, root, filepath.Join(tmp, fmt.Sprint(i)), g)
				mu.Lock()
				fate := "killed by " + killer
				if err != nil || killer == "" {
					alive++
					fate = "SURVIVES: " + g.what
					if err != nil {
						fate = "NO MUTANT: " + err.Error()
					}
				}
				fmt.Printf("%-20s %s:%d  %s  (%.0f s)\n", g.name, g.file, g.line, fate, clock.System.Now().Sub(begun).Seconds())
				mu.Unlock()
			}
		})
	}
	for i := range guards {
		if ctx.Err() != nil {
			break
		}
		work <- i
	}
	close(work)
	wg.Wait()
	fmt.Printf("%d guards, %d killed, %d alive\n", len(guards), len(guards)-alive, alive)
	return alive == 0, context.Cause(ctx)
}

var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// kill returns the first test that fails without the guard, or "".
func kill(ctx context.Context, root, dir string, g guard) (string, error) {
	if g.err != nil {
		return "", g.err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	mutant, overlay := filepath.Join(dir, path.Base(g.file)), filepath.Join(dir, "overlay.json")
	doc, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, filepath.FromSlash(g.file)): mutant}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(mutant, g.mutant, 0o644), os.WriteFile(overlay, doc, 0o644)); err != nil {
		return "", err
	}
	// A nested module is entered: the root's go does not see it.
	module := path.Dir(g.file)
	for ; module != "."; module = path.Dir(module) {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(module), "go.mod")); err == nil {
			break
		}
	}
	own := "./" + path.Dir(g.file)
	packages := append([]string{own}, strings.FieldsFunc(*then, func(r rune) bool { return r == ',' })...)
	if module != "." {
		own = "." + strings.TrimPrefix(path.Dir(g.file), module)
		packages = []string{own}
	}
	goTool := func(args ...string) ([]byte, error) {
		return goTool(ctx, filepath.Join(root, filepath.FromSlash(module)), args...)
	}
	if out, err := goTool("build", "-overlay="+overlay, own); err != nil {
		return "", fmt.Errorf("it does not compile (%s):\n%s", g.what, out)
	}
	for _, pkg := range packages {
		out, err := goTool("test", "-overlay="+overlay, "-failfast", "-vet=off", "-count=1", "-timeout="+timeout.String(), pkg)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err == nil {
			continue
		}
		if *verbose {
			fmt.Printf("%s\n", out)
		}
		name := "a test that hangs or panics"
		if m := failed.FindSubmatch(out); m != nil {
			name = string(m[1])
		}
		return name + " in " + path.Join(module, pkg), nil
	}
	return "", nil
}

func goTool(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}
