// Command corpus keeps the useful part of what fuzzing has found. It copies entries from
// the cache of make fuzz to testdata/fuzz, where every go test runs them.
//
// It runs each entry by itself. What counts is which statements of this project the entry
// runs, and about how often: once, twice, up to 4, 8, 16... times. That is close to what
// the fuzzer itself uses. An entry is useful if it adds to the seeds and to the entries
// that are kept already. The entry that adds most is kept first; of two, the shorter.
// Every entry runs twice, and a statement counts only if both runs reach it. So the same
// cache and the same code give the same choice.
//
//	go run ./internal/testkit/corpus [-n 30] [-size 4096] [-cache .cache/fuzz] [directory...]
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
)

var (
	most  = flag.Int("n", 30, "entries of a fuzz test at most, those in testdata included")
	size  = flag.Int64("size", 4096, "largest size of an entry's file, in `bytes`")
	cache = flag.String("cache", filepath.Join(".cache", "fuzz"), "directory in which make fuzz keeps what it finds")
)

// limit is how long one entry may run, on a busy machine too.
const limit = time.Minute

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(1)
	}
}

// run handles the named packages, or all packages in the cache.
func run(ctx context.Context, dirs []string) error {
	if len(dirs) == 0 {
		found, err := filepath.Glob(filepath.Join(*cache, "*"))
		if err != nil || len(found) == 0 {
			return errors.Join(err, fmt.Errorf("%s is empty; run make fuzz first", *cache))
		}
		err = filepath.WalkDir(*cache, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && d.Name() == "found" {
				dir, rerr := filepath.Rel(*cache, filepath.Dir(path))
				dirs = append(dirs, dir)
				return errors.Join(rerr, fs.SkipDir)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	for _, dir := range dirs {
		p := &pkg{dir: dir, found: filepath.Join(*cache, dir, "found")}
		if err := p.keep(ctx); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	return nil
}

// pkg is a package with fuzz tests.
type pkg struct {
	dir, found string
	work       string // a copy of its directory, made of links
	binary     string
}

// keep chooses entries for each fuzz test of the package.
func (p *pkg) keep(ctx context.Context) (err error) {
	if p.work, err = os.MkdirTemp("", "corpus"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(p.work)) }()
	p.binary = filepath.Join(p.work, "test")
	if err := p.build(ctx); err != nil {
		return err
	}
	if err := p.link(); err != nil {
		return err
	}
	tests, err := filepath.Glob(filepath.Join(p.found, "Fuzz*"))
	if err != nil {
		return err
	}
	for _, t := range tests {
		if err := p.choose(ctx, filepath.Base(t)); err != nil {
			return err
		}
	}
	return nil
}

// build makes a test binary that counts statements of this project.
func (p *pkg) build(ctx context.Context) error {
	deps, err := p.command(ctx, p.dir, "go", "list", "-deps", "-f", `{{with .Module}}{{if or .Main .Replace}}{{$.ImportPath}}{{end}}{{end}}`, ".")
	if err != nil {
		return err
	}
	_, err = p.command(ctx, p.dir, "go", "test", "-c", "-o", p.binary, "-covermode=count", "-coverpkg="+strings.Join(strings.Fields(deps), ","), ".")
	return err
}

// link makes the directory in which the test runs: like the package's own, without its
// corpus.
func (p *pkg) link() error {
	for _, sub := range []string{"", "testdata"} {
		if err := os.MkdirAll(filepath.Join(p.work, sub), 0o755); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(p.dir, sub))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			if at := filepath.Join(sub, e.Name()); at != "testdata" && at != filepath.Join("testdata", "fuzz") {
				from, err := filepath.Abs(filepath.Join(p.dir, at))
				if err == nil {
					err = os.Symlink(from, filepath.Join(p.work, at))
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// choose copies the useful entries of one fuzz test and prints what it did.
func (p *pkg) choose(ctx context.Context, test string) error {
	corpus := filepath.Join(p.work, "testdata", "fuzz", test)
	own := filepath.Join(p.dir, "testdata", "fuzz", test)
	if err := os.MkdirAll(corpus, 0o755); err != nil {
		return err
	}
	kept, err := copyAll(own, corpus, 1<<30)
	if err != nil {
		return err
	}
	fresh, err := copyAll(filepath.Join(p.found, test), corpus, *size)
	if err != nil {
		return err
	}
	names, err := p.names(ctx, test)
	if err != nil {
		return err
	}
	have := features{}
	var some []entry
	for _, name := range names {
		f, err := p.features(ctx, test, name)
		if err != nil {
			return err
		}
		if n, ok := fresh[name]; ok && kept[name] == 0 {
			some = append(some, entry{name, n, f})
		} else {
			have.add(f)
		}
	}
	was := len(have)
	chosen := pick(have, some, *most-len(kept))
	for _, e := range chosen {
		if err := os.MkdirAll(own, 0o755); err != nil {
			return err
		}
		if err := copyFile(filepath.Join(corpus, e.name), filepath.Join(own, e.name)); err != nil {
			return err
		}
	}
	fmt.Printf("%-28s %-18s %4d found, %2d kept before, %2d more: %6d counts of statements, then %6d\n", p.dir, test, len(fresh), len(kept), len(chosen), was, len(have))
	return nil
}

// names returns the names of all entries and seeds.
func (p *pkg) names(ctx context.Context, test string) (names []string, err error) {
	out, err := p.command(ctx, p.work, p.binary, "-test.run", "^"+test+"$", "-test.v", "-test.timeout", limit.String(), "-test.coverprofile", os.DevNull)
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "=== RUN   "+test+"/"); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// features returns what an entry runs in both of two runs.
func (p *pkg) features(ctx context.Context, test, name string) (features, error) {
	var both features
	for range 2 {
		profile := filepath.Join(p.work, "profile")
		if _, err := p.command(ctx, p.work, p.binary, "-test.run", "^"+test+"$/^"+name+"$", "-test.timeout", limit.String(), "-test.coverprofile", profile); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(profile)
		if err != nil {
			return nil, err
		}
		f, err := parse(string(text))
		if err != nil {
			return nil, err
		}
		both = both.and(f)
	}
	return both, nil
}

// command runs a command and returns its output.
func (p *pkg) command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(append([]string{filepath.Base(name)}, args...), " "), err, out)
	}
	return string(out), nil
}

// copyAll copies the files of at most so many bytes, and returns their sizes.
func copyAll(from, to string, most int64) (map[string]int64, error) {
	sizes := map[string]int64{}
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return sizes, nil
	}
	for _, e := range entries {
		info, ierr := e.Info()
		if ierr != nil {
			return nil, ierr
		}
		if info.Mode().IsRegular() && info.Size() <= most {
			sizes[e.Name()] = info.Size()
			if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return sizes, err
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}
