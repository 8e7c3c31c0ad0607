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
	floorRE = regexp.MustCompile("(?m)^- (`[^:\n]+): .+$") // of the map
	quoteRE = regexp.MustCompile("`([^`]+)`")
)

// checkPlaces wants each file, function and method that docs/internals.md names to exist. files are the
// sources by path.
func checkPlaces(doc string, files map[string]string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, m := range placeRE.FindAllStringSubmatch(doc, -1) {
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

// checkMap wants each folder of Go files in the map. A name with "/..." stands for all folders below it.
func checkMap(doc string, files map[string]string) (faults []string) {
	_, part, _ := strings.Cut(doc, "\n## The map\n")
	part, _, _ = strings.Cut(part, "\n## ")
	var rows []string
	for _, m := range floorRE.FindAllStringSubmatch(part, -1) {
		for _, name := range quoteRE.FindAllStringSubmatch(m[1], -1) {
			rows = append(rows, name[1])
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
			faults = append(faults, fmt.Sprintf("%s is not in the map: say what it is for", dir))
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
		"`a/x.go`":     "a/x.go is not there",
		"`a/b.go:G`":   "no function G",
		"`a/b.go:T.F`": "no function T.F",
	} {
		faults := checkPlaces(doc, files)
		if (want == "") != (len(faults) == 0) || want != "" && !strings.Contains(strings.Join(faults, "\n"), want) {
			t.Errorf("%s: got %q, want %q", doc, faults, want)
		}
	}
}

func TestHouseMapBites(t *testing.T) {
	const head, rows = "\n## The map\n", "- `a`, `b/...`: x\n- `fencepost`: y\n"
	for doc, want := range map[string]string{
		head + rows: "",
		rows + head: ". is not in; a is not in; b/c is not in",
		head + strings.ReplaceAll(rows, "b/...", "b"):                       "b/c is not in",
		head + "\n## Else\n" + rows:                                         ". is not in; a is not in; b/c is not in",
		head + strings.Replace(rows, "`fencepost`", "`a` and fencepost", 1): ". is not in",
	} {
		faults := checkMap(doc, map[string]string{"a/b.go": "", "b/c/d.go": "", "e.go": "", "f/g_test.go": ""})
		for i, fault := range faults {
			faults[i], _, _ = strings.Cut(fault, " the map")
		}
		if got := strings.Join(faults, "; "); got != want {
			t.Errorf("%q has faults %q, want %q", doc, got, want)
		}
	}
}
