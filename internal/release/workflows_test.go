package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

// workflow is what the rules look at in a file of .github/workflows.
type workflow struct {
	On          yaml.Node
	Permissions any
	Jobs        map[string]struct {
		Permissions any
		Steps       []struct {
			Uses, Run string
			With      map[string]any
		}
	}
}

var (
	pinned = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[0-9a-f]{40}$`)
	quoted = regexp.MustCompile(`"[^"]*"|'[^']*'`)
)

// writes tells whether permissions let a job change something.
func writes(permissions any) bool {
	switch p := permissions.(type) {
	case string:
		return p != "read-all"
	case map[string]any:
		for _, level := range p {
			if level != "read" && level != "none" {
				return true
			}
		}
	}
	return false
}

// faults are the rules that a workflow breaks. newest tells the version of Go that a file of the tree asks for.
func faults(text string, newest func(file string) string) (bad []string) {
	var w workflow
	if err := yaml.Unmarshal([]byte(text), &w); err != nil {
		return []string{err.Error()}
	}
	say := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	if w.Permissions == nil || writes(w.Permissions) {
		say("all jobs may write: begin with permissions that only read")
	}
	if events, _ := yaml.Marshal(&w.On); strings.Contains(string(events), "pull_request_target") {
		say("pull_request_target gives rights to the code of strangers")
	}
	for name, job := range w.Jobs {
		for _, s := range job.Steps {
			switch action, _, _ := strings.Cut(s.Uses, "@"); {
			case s.Uses != "" && !pinned.MatchString(s.Uses):
				say("%s: %s can move: name a commit", name, s.Uses)
			case action == "actions/checkout" && writes(job.Permissions):
				say("%s: a job that may write has the code of the tree", name)
			case action == "actions/checkout" && s.With["persist-credentials"] != false:
				say("%s: checkout leaves a token in the tree", name)
			case action == "actions/setup-go":
				file, _ := s.With["go-version-file"].(string)
				if v := newest(file); semver.Compare("v"+v, "v"+newest("")) < 0 {
					say("%s: Go %q is older than what a module needs", name, v)
				}
			}
			if strings.Contains(s.Run, "${{") {
				say("%s: a shell runs what an expression yields: %s", name, s.Run)
			}
			if strings.Contains(quoted.ReplaceAllString(s.Run, ""), "$") {
				say("%s: quote the variables of: %s", name, s.Run)
			}
		}
	}
	return bad
}

// wanted returns the version of Go that a go.mod asks setup-go for. Of "" it is the newest that any module needs.
func wanted(t *testing.T) func(string) string {
	t.Helper()
	read := func(name string) *modfile.File {
		b, err := os.ReadFile(name) //nolint:gosec // a file of the tree
		if err != nil {
			t.Fatal(err)
		}
		f, err := modfile.Parse(name, b, nil)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	newest := ""
	err := filepath.WalkDir("../..", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && (d.Name() == ".cache" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if err == nil && d.Name() == "go.mod" {
			v := read(p).Go.Version
			if first := read("../../go.mod").Go.Version; v != first {
				t.Errorf("%s has go %s, the root module %s", p, v, first)
			}
			newest = max(newest, v)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(file string) string {
		if file == "" {
			return newest
		}
		f := read(filepath.Join("../..", file))
		if f.Toolchain != nil {
			return strings.TrimPrefix(f.Toolchain.Name, "go")
		}
		return f.Go.Version
	}
}

func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d workflows, %v", len(files), err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name) //nolint:gosec // a file of the tree
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range faults(string(b), wanted(t)) {
			t.Errorf("%s: %s", filepath.Base(name), fault)
		}
	}
}

func TestWorkflowsBite(t *testing.T) {
	commit := strings.Repeat("0a", 20)
	good := `
on: push
permissions: {contents: read}
jobs:
  build:
    steps:
      - uses: actions/checkout@` + commit + ` # v1.2.3
        with: {persist-credentials: false}
      - uses: actions/setup-go@` + commit + `
        with: {go-version-file: go.mod}
      - run: make release VERSION="$GITHUB_REF_NAME"
  upload:
    permissions: {contents: write}
    steps:
      - uses: actions/download-artifact@` + commit + "\n"
	newest := func(file string) string {
		return map[string]string{"go.mod": "1.26.10"}[file] + map[bool]string{true: "1.26.4"}[file == ""]
	}
	if bad := faults(good, newest); len(bad) > 0 {
		t.Errorf("%q", bad)
	}
	for _, c := range []struct{ from, to, want string }{
		{"permissions: {contents: read}\n", "", "all jobs may write"},
		{"permissions: {contents: read}\n", "permissions: write-all\n", "all jobs may write"},
		{"on: push", "on: {pull_request_target: {}}", "strangers"},
		{"download-artifact@" + commit, "download-artifact@v5", "can move"},
		{"  build:\n", "  build:\n    permissions: {contents: write}\n", "has the code"},
		{"{persist-credentials: false}", "{}", "leaves a token"},
		{"go-version-file: go.mod", "go-version-file: old.mod", "older"},
		{`VERSION="$GITHUB_REF_NAME"`, "VERSION=$GITHUB_REF_NAME", "quote"},
		{`"$GITHUB_REF_NAME"`, `"${{ github.ref_name }}"`, "expression"},
	} {
		bad := faults(strings.Replace(good, c.from, c.to, 1), newest)
		if !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, c.want) }) {
			t.Errorf("with %q the faults are %q, without %q", c.to, bad, c.want)
		}
	}
}

// TestVersionRunsNothing: a tag is text of whoever may push one. It must not reach a shell, nor make's functions.
func TestVersionRunsNothing(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	for _, version := range []string{"v1.0.0;touch " + mark, "v1.0.0$(touch " + mark + ")", "v1.0.0`touch " + mark + "`", "v1.0.0/../x", "1.0.0", "v1.0"} {
		for _, task := range []string{"release", "container"} {
			c := exec.CommandContext(t.Context(), "../../.ci/tasks", task)
			c.Env = append(os.Environ(), "VERSION="+version)
			out, err := c.CombinedOutput()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(string(out), "VERSION") {
				t.Errorf("%s with VERSION=%s: %v: %s", task, version, err, out)
			}
		}
	}
	if _, err := os.Stat(mark); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a version was run: %v", err)
	}
}
