package fencepost_test

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	placeRE = regexp.MustCompile("`((?:[a-z0-9_]+/)*[a-z0-9_]+\\.go)(?::(?:([A-Za-z]+)\\.)?([A-Za-z]+))?`")
	mapRE   = regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\| (`[a-z0-9_]+\\.go`.*) \\|$")
)

// checkPlaces wants each file, function and method that docs/internals.md names to exist,
// and each file of a package that its map describes to be in the map. files are the
// sources by path.
func checkPlaces(doc string, files map[string]string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, row := range mapRE.FindAllStringSubmatch(doc, -1) {
		dir := row[1]
		if dir == "fencepost" {
			dir = "."
		}
		listed := []string{"doc.go", "errors.go", "options.go"}
		for _, m := range placeRE.FindAllStringSubmatch(row[2], -1) {
			listed = append(listed, m[1])
			if _, ok := files[path.Join(dir, m[1])]; !ok {
				fault("the map of %s names %s, which is not there", dir, m[1])
			}
		}
		for file := range files {
			if base := path.Base(file); path.Dir(file) == dir && !strings.HasSuffix(base, "_test.go") && !slices.Contains(listed, base) {
				fault("the map of %s lacks %s: say in a few words what it is for", dir, base)
			}
		}
	}
	for _, m := range placeRE.FindAllStringSubmatch(mapRE.ReplaceAllString(doc, ""), -1) {
		file, typ, name := m[1], m[2], m[3]
		src, ok := files[file]
		switch {
		case !ok && !strings.Contains(file, "/") && name == "": // such as doc.go, of every package
		case !ok:
			fault("%s is not there", file)
		case name == "":
		case typ == "" && !strings.Contains(src, "\nfunc "+name+"("),
			typ != "" && !regexp.MustCompile(`\nfunc \(\w+ \*?`+typ+`\) `+name+`\(`).MatchString(src):
			fault("%s has no function %s", file, strings.TrimPrefix(typ+"."+name, "."))
		}
	}
	slices.Sort(faults)
	return faults
}

func TestHousePlaces(t *testing.T) {
	files := map[string]string{}
	for _, f := range tree(t) {
		files[f.path] = slurp(t, f.path)
	}
	doc, err := os.ReadFile("docs/internals.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range checkPlaces(string(doc), files) {
		t.Errorf("docs/internals.md: %s", fault)
	}
}

func TestHousePlacesBite(t *testing.T) {
	files := map[string]string{"a/b.go": "\nfunc F() {\n\nfunc (t *T) M(", "a/c.go": "", "a/doc.go": "", "a/b_test.go": ""}
	for doc, want := range map[string]string{
		"`a/b.go:F` and `a/b.go:T.M` in `a/b.go`; `doc.go`": "",
		"| `a` | `b.go`, `c.go` (c) |":                      "",
		"`a/x.go`":                                          "a/x.go is not there",
		"`a/b.go:G`":                                        "no function G",
		"`a/b.go:T.F`":                                      "no function T.F",
		"| `a` | `b.go` (c) |":                              "lacks c.go",
		"| `a` | `b.go`, `c.go`, `d.go` |":                  "names d.go",
	} {
		faults := checkPlaces(doc, files)
		if (want == "") != (len(faults) == 0) || want != "" && !strings.Contains(strings.Join(faults, "\n"), want) {
			t.Errorf("%s: got %q, want %q", doc, faults, want)
		}
	}
}
