package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPages: what docs/ repeats of the code is what the code says.
func TestPages(t *testing.T) {
	all, err := pages("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join("../../../docs", name))
		if err != nil {
			t.Error(err)
		} else if string(got) != want {
			t.Errorf("docs/%s is not what the code says; run make reference", name)
		}
	}
	for name, says := range map[string]string{
		"options.md": "| `Validity` | `time.Duration` | ", "messages.md": "| elected | info | `epoch`, `holder`, `waited` | `leader` |\n",
	} {
		if !strings.Contains(all[name], says) {
			t.Errorf("%s lacks %q", name, says)
		}
	}
}
