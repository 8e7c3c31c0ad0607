package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Where a mutant was killed.
const (
	namedTest  = "named test"
	ownTests   = "own tests"
	otherTests = "other tests"
	simulation = "simulation"
)

// sim is the package of the simulation.
const sim = "internal/test/sim"

// fate is the result for one mutant.
type fate struct {
	test  string // that failed; "" if none did
	where string
	hangs []string // tests that did not end, which kills no mutant
	what  string   // the change that no test noticed
	err   error    // why there was no mutant to try
}

func (f fate) killed() bool { return f.test != "" && f.err == nil }

// stranger says which test has killed a guard's mutant, if it is not the one that tells the guard's story.
func (f fate) stranger(g guard) string {
	if !f.killed() || f.where == namedTest || len(g.stories) == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s): %s names itself, and %s failed", g.name, g.file, g.stories[0].where(), f.test)
}

func (f fate) String() string {
	switch {
	case f.err != nil:
		return "NO MUTANT: " + f.err.Error()
	case f.test != "":
		return f.test
	case len(f.hangs) > 0:
		return "ONLY HANGS in " + strings.Join(f.hangs, ", ") + ": " + f.what
	}
	return "SURVIVES: " + f.what
}

// trial is one mutant whose tests have not run yet.
type trial struct {
	root, dir string
	guard     guard
	users     map[string][]string
	whole     *whole
	overlay   string
}

// whole is the code with all its guards. A test that fails on it kills no mutant.
type whole struct {
	root, tmp string
	mu        sync.Mutex
	said      map[string]error // the result for each package, or test of one, that passes was called for
}

// passes returns nil if a package's tests pass, or those that run names.
func (w *whole) passes(ctx context.Context, pkg, run string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err, known := w.said[pkg+" "+run]
	if !known {
		err = w.try(ctx, pkg, run)
		w.said[pkg+" "+run] = err
	}
	return err
}

func (w *whole) try(ctx context.Context, pkg, run string) error {
	dir := filepath.Join(w.root, filepath.FromSlash(pkg))
	what, name, args := "the tests", "go", []string{"test", "."} // the go command caches earlier passes
	if run != "" {
		// One binary serves all tests of the package that are named for a guard.
		what, name, args = run, filepath.Join(w.tmp, "whole-"+strings.ReplaceAll(pkg, "/", "-")), []string{"-test.run=" + run}
		if out, err := command(ctx, dir, "go", "test", "-c", "-o", name, "-ldflags=-s -w", "."); err != nil {
			return fmt.Errorf("%s does not compile:\n%s", pkg, out)
		}
	}
	if out, err := command(ctx, dir, name, args...); err != nil {
		return fmt.Errorf("%s of %s fail with it, too; make them pass first:\n%s", what, pkg, out)
	}
	return nil
}

// run runs tests until one fails: first the one that tells the guard's story, then those of the guard's own
// package, then those of the packages that use it, the nearest first, then histories of the simulation.
func (t *trial) run(ctx context.Context) fate {
	f := fate{what: t.guard.what, err: t.guard.err}
	if f.err == nil {
		f.err = t.write()
	}
	if f.err != nil {
		return f
	}
	mod, own := module(t.root, t.guard.file), path.Dir(t.guard.file)
	for _, s := range t.guard.stories {
		binary, err := t.compile(ctx, module(t.root, s.file), s.dir)
		if err != nil {
			f.err = err
			return f
		}
		if f.where = namedTest; t.tests(ctx, &f, s.dir, binary, s.test) {
			return f
		}
	}
	packages := []string{own}
	packages = append(packages, t.users[own]...)
	for i, pkg := range packages {
		binary, err := t.compile(ctx, mod, pkg)
		if err != nil {
			f.err = err
			return f
		}
		if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
			continue // it has no tests of its own; those that use it have
		}
		f.where = otherTests
		switch {
		case i == 0:
			f.where = ownTests
		case pkg == sim:
			f.where = simulation
		}
		if t.tests(ctx, &f, pkg, binary, "") {
			return f
		}
		if pkg != sim {
			continue
		}
		// So many histories at a time run in one process, and no process outlives the call.
		const chunk = 50
		for seed := 1; seed <= *seeds; seed += chunk {
			if t.tests(ctx, &f, pkg, binary, "^TestHistories$", fmt.Sprintf("-seeds=%d", chunk), fmt.Sprintf("-seed=%d", seed)) {
				f.test += fmt.Sprintf(" from seed %d", seed)
				return f
			}
		}
	}
	return f
}

// write writes the mutant's file and the overlay that names it.
func (t *trial) write() error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(t.dir, path.Base(t.guard.file))
	t.overlay = filepath.Join(t.dir, "overlay.json")
	doc, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(t.root, filepath.FromSlash(t.guard.file)): file}})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, t.guard.mutant, 0o644), os.WriteFile(t.overlay, doc, 0o644))
}

// compile builds the tests of a package of a module. It leaves out what debuggers need,
// which halves the time.
func (t *trial) compile(ctx context.Context, mod, pkg string) (string, error) {
	binary := filepath.Join(t.dir, strings.ReplaceAll(pkg, "/", "-")+".test")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	below := "./" + strings.TrimPrefix(strings.TrimPrefix(pkg, mod), "/")
	out, err := command(ctx, filepath.Join(t.root, filepath.FromSlash(mod)),
		"go", "test", "-c", "-o", binary, "-overlay="+t.overlay, "-ldflags=-s -w", below)
	if err != nil {
		return "", fmt.Errorf("it does not compile (%s):\n%s", t.guard.what, out)
	}
	return binary, nil
}

var (
	failed  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	hanging = regexp.MustCompile(`(?s)^panic: test timed out after .*?running tests:\n(.*?)\n\n`)
	running = regexp.MustCompile(`(?m)^\s+(\S+) \(`)
)

// tests reports whether a test of the binary fails; run names those that run, if not all. If a test hangs,
// the others run again without it.
func (t *trial) tests(ctx context.Context, f *fate, pkg, binary, run string, args ...string) bool {
	const patience = 3
	for range patience {
		all := slices.Concat([]string{"-test.failfast", "-test.timeout=" + timeout.String()}, args)
		if run != "" {
			all = append(all, "-test.run="+run)
		}
		if len(f.hangs) > 0 {
			all = append(all, "-test.skip=^("+strings.Join(f.hangs, "|")+")$")
		}
		out, err := command(ctx, filepath.Join(t.root, filepath.FromSlash(pkg)), binary, all...)
		if err == nil && f.where == namedTest && bytes.Contains(out, []byte("no tests to run")) {
			f.err = fmt.Errorf("the test that is named for it, %s, does not exist in %s", run, pkg)
			return true
		}
		if err == nil {
			return false
		}
		if ctx.Err() != nil {
			f.err = ctx.Err()
			return true
		}
		if *verbose {
			fmt.Printf("%s\n", out)
		}
		if tests := hung(out); len(tests) > 0 {
			if f.hangs = append(f.hangs, tests...); f.where == namedTest {
				return false
			}
			continue
		}
		alone := run
		if len(args) > 0 {
			alone = "" // they are tried with other seeds each time
		}
		if f.err = t.whole.passes(ctx, pkg, alone); f.err != nil {
			return true
		}
		f.test = "a panic"
		if test := failing(out); test != "" {
			f.test = test
		}
		f.test += " in " + pkg
		return true
	}
	return false
}

// failing returns the first test that failed, and its first subtest if that did.
func failing(out []byte) (test string) {
	for _, m := range failed.FindAllSubmatch(out, 2) {
		if name := string(m[1]); test == "" || strings.HasPrefix(name, test+"/") {
			test = name
		}
	}
	return test
}

// hung returns the top-level tests that were running when their time was over.
func hung(out []byte) []string {
	at := bytes.Index(out, []byte("panic: test timed out"))
	if at < 0 {
		return nil
	}
	m := hanging.FindSubmatch(out[at:])
	if m == nil {
		return nil
	}
	var tests []string
	for _, r := range running.FindAllSubmatch(m[1], -1) {
		name, _, _ := strings.Cut(string(r[1]), "/")
		if !slices.Contains(tests, name) {
			tests = append(tests, name)
		}
	}
	return tests
}

// usersOf returns for each package of some modules the packages of its module whose tests depend on
// it: first those that depend on the fewest packages, and in the root module the simulation last.
func usersOf(ctx context.Context, root string, modules ...string) (map[string][]string, error) {
	users := map[string][]string{}
	for _, mod := range modules {
		if err := addUsers(ctx, root, mod, users); err != nil {
			return nil, err
		}
	}
	return users, nil
}

func addUsers(ctx context.Context, root, mod string, users map[string][]string) error {
	out, err := command(ctx, filepath.Join(root, filepath.FromSlash(mod)), "go", "list", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")
	if err != nil {
		return fmt.Errorf("%w:\n%s", err, out)
	}
	const modulePath = "github.com/fencepost/fencepost"
	below := func(path string) string { return cmp.Or(strings.Trim(strings.TrimPrefix(path, modulePath), "/"), ".") }
	var tests [][]string // a package with tests, and all that they depend on
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if pkg, ok := strings.CutSuffix(words[0], ".test"); ok {
			words[0] = pkg
			tests = append(tests, words)
		}
	}
	slices.SortStableFunc(tests, func(a, b []string) int { return cmp.Compare(len(a), len(b)) })
	own := map[string]bool{}
	for _, words := range tests {
		user := below(words[0])
		for _, used := range words[1:] {
			if !strings.HasPrefix(used, modulePath) || used == words[0] || user == sim || mod != "." && !strings.HasPrefix(below(used)+"/", mod+"/") {
				continue
			}
			own[below(used)] = true
			if !slices.Contains(users[below(used)], user) {
				users[below(used)] = append(users[below(used)], user)
			}
		}
	}
	if mod == "." {
		for used := range own {
			users[used] = append(users[used], sim)
		}
	}
	return nil
}

// command runs a program and returns its output.
func command(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.WaitDelay = 10 * time.Second
	return cmd.CombinedOutput()
}
