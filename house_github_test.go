package fencepost_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHouseOfDependabot wants each module, and each list of Python packages, to be one that is
// kept up to date, and nothing else.
func TestHouseOfDependabot(t *testing.T) {
	want := map[string][]string{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if kind := map[string]string{"go.mod": "gomod", "requirements.txt": "pip"}[d.Name()]; kind != "" {
			want[kind] = append(want[kind], path.Join("/", path.Dir(filepath.ToSlash(p))))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(".github/dependabot.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(b), "- package-ecosystem: ")[1:] {
		kind, rest, _ := strings.Cut(part, "\n")
		if want[kind] == nil {
			continue
		}
		var got []string
		for _, m := range regexp.MustCompile(`(?m)^ {6}- (/\S*)$`).FindAllStringSubmatch(rest, -1) {
			got = append(got, m[1])
		}
		slices.Sort(want[kind])
		slices.Sort(got)
		if !slices.Equal(got, want[kind]) {
			t.Errorf("%s has %q, the tree %q", kind, got, want[kind])
		}
		delete(want, kind)
	}
	if len(want) > 0 {
		t.Errorf("nothing of kind %v is kept up to date", want)
	}
}
