//go:build unix

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func build(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "slatedb-style")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

func TestProgram(t *testing.T) {
	bin := build(t)
	t.Run("story", func(t *testing.T) { tells(t, bin) })
	t.Run("stores that cannot serve", func(t *testing.T) { cannotServe(t, bin) })
}

func tells(t *testing.T, bin string) {
	var out, errs bytes.Buffer
	cmd := exec.Command(bin)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	for _, want := range []string{
		`leads in epoch 1`,
		`is frozen`,
		`leads in epoch 2`,
		`and prunes .*\d+ × data.*\d+ × lock.*\d+ × manifest`,
		`is refused: data/0{19}1/\d{20} → 412 Precondition Failed, it holds the seal of epoch 2`,
		`each of the \d+ acknowledged, once, in order`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the story does not say %q:\n%s", want, &out)
		}
	}
	if errs.Len() > 0 {
		t.Errorf("stderr: %s", &errs)
	}
}

func cannotServe(t *testing.T, bin string) {
	for url, want := range map[string]string{
		"mem://x":     "lives in the memory of one process",
		"nosuch://x":  "no driver for nosuch://",
		"not-a-store": "has no scheme",
	} {
		out, err := exec.Command(bin, "-store", url).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("-store %s: %v, %s; want %q", url, err, out, want)
		}
	}
}
