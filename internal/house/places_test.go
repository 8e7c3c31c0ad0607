package house_test

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
	mapRE   = regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\| (`[a-z0-9_]+\\.go`.*) \\|$")
	rowRE   = regexp.MustCompile("(?m)^\\| `([a-z0-9/.-]+)` \\| [^|]+ \\|$")   // of the table of files
	floorRE = regexp.MustCompile("(?m)^\\| [^|`]*\\| (`[^|]+) \\| [^|]+ \\|$") // of the table of floors
	quoteRE = regexp.MustCompile("`([^`]+)`")
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

// checkMap wants each folder of Go files in both tables of the map. A name with "/..." stands for
// all folders below it.
func checkMap(doc string, files map[string]string) (faults []string) {
	_, part, _ := strings.Cut(doc, "\n## The map\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var rows, floors []string
	for _, m := range rowRE.FindAllStringSubmatch(part, -1) {
		rows = append(rows, m[1])
	}
	for _, m := range floorRE.FindAllStringSubmatch(part, -1) {
		for _, name := range quoteRE.FindAllStringSubmatch(m[1], -1) {
			floors = append(floors, name[1])
		}
	}
	told := map[string]bool{}
	for file := range files {
		dir := path.Dir(file)
		if told[dir] || strings.HasSuffix(file, "_test.go") {
			continue
		}
		told[dir] = true
		name := dir
		if dir == "." {
			name = "fencepost"
		}
		if !matchesAny(rows, name) {
			faults = append(faults, fmt.Sprintf("%s has no row in the table of files: say what it is for", dir))
		}
		if !matchesAny(floors, name) {
			faults = append(faults, fmt.Sprintf("%s is on no floor", dir))
		}
	}
	slices.Sort(faults)
	return faults
}

func TestHousePlaces(t *testing.T) {
	t.Chdir("../..")
	files := map[string]string{}
	for _, f := range tree(t) {
		files[f.path] = slurp(t, f.path)
	}
	doc, err := os.ReadFile("docs/internals.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range append(checkPlaces(string(doc), files), checkMap(string(doc), files)...) {
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

func TestHouseMapBites(t *testing.T) {
	const head, floors, rows = "\n## The map\n", "| a floor | `a`, `b/...` | x |\n| | `fencepost` | y |\n", "\n| `a` | `b.go` |\n| `b/...` | many |\n| `fencepost` | z |\n"
	for doc, want := range map[string]string{
		head + floors + rows: "",
		head + rows:          ". is on no floor; a is on no floor; b/c is on no floor",
		head + floors:        ". has no row; a has no row; b/c has no row",
		floors + rows + head: ". has no row; . is on no floor; a has no row; a is on no floor; b/c has no row; b/c is on no floor",
		head + floors + strings.ReplaceAll(rows, "b/...", "b"):                       "b/c has no row",
		head + floors + "## Else\n" + rows:                                           ". has no row; a has no row; b/c has no row",
		head + strings.Replace(floors, "`fencepost`", "`a` and fencepost", 1) + rows: ". is on no floor",
	} {
		faults := checkMap(doc, map[string]string{"a/b.go": "", "b/c/d.go": "", "e.go": "", "f/g_test.go": ""})
		for i, fault := range faults {
			faults[i], _, _ = strings.Cut(fault, " in the table")
		}
		if got := strings.Join(faults, "; "); got != want {
			t.Errorf("%q has faults %q, want %q", doc, got, want)
		}
	}
}
