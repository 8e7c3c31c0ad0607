package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A test that hangs is told from one that fails, and its name is found.
func TestHung(t *testing.T) {
	out := "=== RUN\npanic: test timed out after 1m30s\n\trunning tests:\n\t\tTestA (1m30s)\n\t\tTestB/sub_one (4s)\n\t\tTestB/sub_two (4s)\n\ngoroutine 17 [running]:\n\tTestC (no)\n"
	if got := hung([]byte(out)); !slices.Equal(got, []string{"TestA", "TestB"}) {
		t.Errorf("%q", got)
	}
	if got := hung([]byte("--- FAIL: TestA (0.00s)\npanic: boom\n\n")); got != nil {
		t.Errorf("%q", got)
	}
}

// TestFailing: which test is said to have killed a mutant.
func TestFailing(t *testing.T) {
	for out, want := range map[string]string{
		"": "",
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n    --- FAIL: TestA/c (0.1s)\n": "TestA/b",
		"--- FAIL: TestA (0.1s)\n--- FAIL: TestB (0.1s)\n":                                     "TestA",
	} {
		if got := failing([]byte(out)); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}

// What only hangs is not killed.
func TestFate(t *testing.T) {
	for _, f := range []fate{{}, {hangs: []string{"TestA"}}, {err: context.Canceled}, {test: "TestA", err: context.Canceled}} {
		if f.killed() {
			t.Errorf("%+v counts as killed", f)
		}
	}
	if f := (fate{test: "TestA"}); !f.killed() {
		t.Error("what failed a test counts as alive")
	}
}

// Tests that fail anyhow kill nothing.
func TestWhole(t *testing.T) {
	root := t.TempDir()
	for name, body := range map[string]string{
		"go.mod":             "module m\n",
		"good/good_test.go":  "package good\n\nimport \"testing\"\n\nfunc TestGood(*testing.T) {}\n",
		"broken/bad_test.go": "package broken\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) { t.Fail() }\n",
	} {
		file := filepath.Join(root, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(body), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	w := &whole{root: root, tmp: t.TempDir(), said: map[string]error{}}
	for range 2 {
		for run, sound := range map[string]bool{"": false, "^TestBad$": false, "^TestGood$": true} {
			if err := w.passes(t.Context(), "good", run); err != nil {
				t.Error(err)
			}
			if err := w.passes(t.Context(), "broken", run); (err == nil) != sound || !sound && !strings.Contains(err.Error(), "TestBad") {
				t.Errorf("error is %v for %q", err, run)
			}
		}
	}
}

// TestUsers: the tests of whoever imports a package may kill its mutants, and the
// simulation is asked last.
func TestUsers(t *testing.T) {
	users, err := usersOf(t.Context(), "../../..", ".", "ext/group")
	if err != nil {
		t.Fatal(err)
	}
	for pkg, user := range map[string]string{"writer": ".", "internal/lease": "leader", "internal/segment": "compactor", "manifest": "reader"} {
		got := users[pkg]
		if !slices.Contains(got, user) || slices.Contains(got, pkg) || slices.Contains(got, "internal/test/mutants") || got[len(got)-1] != sim {
			t.Errorf("%s: %v", pkg, got)
		}
	}
	// Also in a module of its own, and of that module only.
	if got := users["ext/group/internal/assign"]; !slices.Contains(got, "ext/group/internal/member") || !slices.Contains(got, "ext/group") || slices.Contains(got, sim) {
		t.Errorf("ext/group/internal/assign is used by %v", got)
	}
	if slices.Contains(users["writer"], "ext/group") {
		t.Error("the tests of ext/group are in another module than writer")
	}
}

func TestModule(t *testing.T) {
	for file, want := range map[string]string{"writer/open.go": ".", "store/gcsstore/put.go": "store/gcsstore"} {
		if got := module("../../..", file); got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
}
