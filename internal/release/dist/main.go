package main

import (
	"context"
	"debug/elf"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// platform is a system and a processor that programs are made for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// all are the platforms of a release.
var all = []platform{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"}, {"windows", "arm64"},
}

// release is one run of this program.
type release struct {
	tree    string // the project's root
	out     string
	version string
	time    time.Time // of everything that is made
	work    string    // for what is not offered
	// plain builds with the settings of this machine, and so with what its cache has. It is for
	// tests: everything is compiled anew for a release, which takes minutes.
	plain bool
	// binaries are the programs that are built.
	binaries map[platform]string
	// texts are manual pages and completions, by their path in an archive.
	texts map[string][]byte
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("dist: ")
	version := flag.String("version", "", "the version, such as v0.1.0")
	tree := flag.String("tree", "../..", "the project's root")
	out := flag.String("out", "", "a folder, which is replaced")
	only := flag.String("platforms", "", "only these, such as linux/amd64,darwin/arm64")
	flag.Parse()
	if flag.NArg() > 0 || *out == "" || !semver.IsValid(*version) || semver.Canonical(*version) != *version {
		log.Print("usage: dist -version vX.Y.Z -out DIR [-tree DIR] [-platforms OS/ARCH,…]")
		os.Exit(2)
	}
	platforms := all
	if *only != "" {
		platforms = slices.DeleteFunc(slices.Clone(all), func(p platform) bool { return !slices.Contains(strings.Split(*only, ","), p.String()) })
	}
	if err := run(context.Background(), &release{tree: *tree, out: *out, version: *version}, platforms); err != nil {
		log.Fatal(err)
	}
}

// run makes a release.
func run(ctx context.Context, r *release, platforms []platform) (err error) {
	if len(platforms) == 0 {
		return errors.New("no such platform")
	}
	r.binaries, r.texts = map[platform]string{}, map[string][]byte{}
	if r.tree, err = filepath.Abs(r.tree); err != nil {
		return err
	}
	if r.out, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if r.time, err = r.commitTime(ctx); err != nil {
		return err
	}
	if r.work, err = os.MkdirTemp("", "fencepost-dist-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.work)) }()
	if err := r.buildAll(ctx, platforms); err != nil {
		return err
	}
	return r.pack(platforms)
}

// pack makes all files out of the programs.
func (r *release) pack(platforms []platform) error {
	if err := r.empty(); err != nil {
		return err
	}
	for _, p := range platforms {
		if err := r.packOne(p); err != nil {
			return fmt.Errorf("%v: %w", p, err)
		}
	}
	if err := r.image(platforms); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// empty makes the folder anew.
func (r *release) empty() error {
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	return os.MkdirAll(r.out, 0o755) //nolint:gosec // for everybody
}

// packOne makes the files for one platform.
func (r *release) packOne(p platform) error {
	if err := r.archive(p); err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := r.bill(p); err != nil {
		return fmt.Errorf("list of parts: %w", err)
	}
	if p.os == "linux" {
		if err := r.packages(p); err != nil {
			return fmt.Errorf("package: %w", err)
		}
	}
	return nil
}

// commitTime is the time of the newest commit, and so of everything that is made.
func (r *release) commitTime(ctx context.Context) (time.Time, error) {
	c := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct")
	c.Dir = r.tree
	out, err := c.Output()
	if err != nil {
		return time.Time{}, fmt.Errorf("the time of the newest commit is not known: %w", err)
	}
	var sec int64
	_, err = fmt.Sscan(string(out), &sec)
	return time.Unix(sec, 0).UTC(), err
}

// buildAll builds the programs, and lets one that runs here write the manual.
func (r *release) buildAll(ctx context.Context, platforms []platform) error {
	for _, p := range platforms {
		binary, err := r.build(ctx, p)
		if err != nil {
			return fmt.Errorf("building for %v: %w", p, err)
		}
		r.binaries[p] = binary
	}
	own := platform{runtime.GOOS, runtime.GOARCH}
	if r.binaries[own] == "" {
		return fmt.Errorf("the manual is written by the program itself: build for %v too", own)
	}
	return r.write(ctx, r.binaries[own])
}

// build builds the command line for a platform.
func (r *release) build(ctx context.Context, p platform) (string, error) {
	name := "fencepost"
	if p.os == "windows" {
		name += ".exe"
	}
	binary := filepath.Join(r.work, p.os+"_"+p.arch, name)
	args := []string{"build", "-buildvcs=false", "-ldflags", "-s -w -buildid= -X main.release=" + r.version, "-o", binary}
	env := append(os.Environ(), "GOOS="+p.os, "GOARCH="+p.arch)
	if !r.plain {
		// Settings of this machine must not get into the program.
		args = append(args, "-trimpath")
		env = append(env, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	}
	c := exec.CommandContext(ctx, "go", append(args, ".")...) //nolint:gosec // the version was checked
	c.Dir, c.Env = filepath.Join(r.tree, "cmd", "fencepost"), env
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if p.os == "linux" && !r.plain {
		return binary, static(binary)
	}
	return binary, nil
}

// static wants a program that needs no library: the image has none.
func static(binary string) error {
	f, err := elf.Open(binary)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for _, part := range f.Progs {
		if part.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is linked dynamically", binary)
		}
	}
	return nil
}

// write runs the program to get its manual pages and completions.
func (r *release) write(ctx context.Context, binary string) error {
	man := filepath.Join(r.work, "man")
	if out, err := exec.CommandContext(ctx, binary, "man", man).CombinedOutput(); err != nil {
		return fmt.Errorf("manual pages: %w\n%s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(man, "*.1"))
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("no manual pages were written: %w", err)
	}
	for _, page := range pages {
		b, err := os.ReadFile(page) //nolint:gosec // it was just written
		if err != nil {
			return err
		}
		r.texts["man/man1/"+filepath.Base(page)] = b
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		b, err := exec.CommandContext(ctx, binary, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("completion for %s: %w", shell, err)
		}
		r.texts["completions/fencepost."+shell] = b
	}
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		b, err := fs.ReadFile(os.DirFS(r.tree), name)
		if err != nil {
			return err
		}
		r.texts[name] = b
	}
	return nil
}

// file writes one of the files of the release.
func (r *release) file(name string, body []byte) error {
	return os.WriteFile(filepath.Join(r.out, name), body, 0o644) //nolint:gosec // for everybody
}
