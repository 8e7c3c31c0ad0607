package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// TestManualPages: each verb has a page, with all of its flags.
func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	must(t, "", "man", dir)
	root := rootCommand((&kit.Kit{}))
	for c := range family(root) {
		if c.Hidden {
			continue
		}
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			continue
		}
		text := strings.ReplaceAll(string(page), `\-`, "-")
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s does not have --%s", name, f.Name)
			}
		})
		if !strings.Contains(text, c.Short) || strings.Contains(text, "Auto generated") {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}

// TestCompletion: the scripts are made for each shell, and ask the command what fits.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := must(t, "", "completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("%s: %s", shell, out)
		}
	}
	script := writeFile(t, must(t, "", "completion", "bash"))
	if out, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for typed, want := range map[string]string{
		"stat": "status\t", "cat --fol": "--follow\t", "cat --format ": "frames\n", "status ": "gs://\n", "group dr": "drain\t",
	} {
		args := strings.Split(typed, " ")
		if out := must(t, "", append([]string{"__complete"}, args...)...); !strings.Contains(out, want) {
			t.Errorf("%q: %s", typed, out)
		}
	}
}
