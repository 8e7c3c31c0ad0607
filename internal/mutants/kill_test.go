package main

import (
	"context"
	"slices"
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

// TestUsers: the tests of whoever imports a package may kill its mutants, and the
// simulation is asked last.
func TestUsers(t *testing.T) {
	users, err := usersOf(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	for pkg, first := range map[string]string{"writer": ".", "internal/lease": "leader", "internal/segment": "compactor", "manifest": "."} {
		got := users[pkg]
		if len(got) < 2 || got[len(got)-1] != sim {
			t.Errorf("%s: %v", pkg, got)
		}
		if i := slices.Index(got, first); i < 0 || i > 4 {
			t.Errorf("%s: %s is not among the first of %v", pkg, first, got)
		}
		if slices.Contains(got, pkg) || slices.Contains(got, "internal/mutants") {
			t.Errorf("%s: %v", pkg, got)
		}
	}
}

func TestModule(t *testing.T) {
	for file, want := range map[string]string{"writer/open.go": ".", "store/gcsstore/put.go": "store/gcsstore"} {
		if got := module("../..", file); got != want {
			t.Errorf("%s: %s", file, got)
		}
	}
}
