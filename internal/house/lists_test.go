package house_test

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// This file has rules for lists of what the tree has: drivers of stores, what Dependabot keeps up to date, and tests
// that are named after a pitfall.

var registerRE = regexp.MustCompile(`store\.Register\("([^"]+)"`)

// checkDrivers wants each scheme that a package below store/ registers to be in each place that
// the comment of package store lists. texts are files by path.
func checkDrivers(files []source, texts map[string]string) (schemes, faults []string) {
	for _, f := range files {
		if f.test() || !strings.HasPrefix(f.path, "store/") {
			continue
		}
		for _, m := range registerRE.FindAllStringSubmatch(texts[f.path], -1) {
			scheme, pkg := m[1], path.Join(module, f.dir())
			schemes = append(schemes, scheme)
			quoted := regexp.QuoteMeta(scheme)
			for _, place := range []struct{ file, name, pattern string }{
				{"store/open.go", "in the map drivers", `(?m)^\t"` + quoted + `":\s+"` + regexp.QuoteMeta(pkg) + `",$`},
				{"store/open.go", "in the comment of Open", `(?m)^//\t` + quoted + `://.* package ` + regexp.QuoteMeta(f.dir()) + `$`},
				{"README.md", "as a URL", "`" + quoted + "://"},
				{"docs/stores.md", "as the name of a driver in backquotes", "`" + quoted + "`"},
			} {
				if !regexp.MustCompile(place.pattern).MatchString(texts[place.file]) {
					faults = append(faults, fmt.Sprintf("%s lacks %s:// %s", place.file, scheme, place.name))
				}
			}
			linked := func(f source) bool {
				return !f.test() && (f.dir() == "." || f.dir() == "cmd/fencepost") && slices.Contains(f.imports, pkg)
			}
			if !slices.ContainsFunc(files, linked) {
				faults = append(faults, fmt.Sprintf("the command line does not know %s://: import %s in cmd/fencepost/clouds.go", scheme, f.dir()))
			}
		}
	}
	return schemes, faults
}

func TestHouseOfDrivers(t *testing.T) {
	t.Chdir("../..")
	files, texts := tree(t), map[string]string{}
	for _, f := range files {
		if strings.HasPrefix(f.path, "store/") {
			texts[f.path] = slurp(t, f.path)
		}
	}
	for _, page := range []string{"README.md", "docs/stores.md"} {
		texts[page] = slurp(t, page)
	}
	// A comment that shows how to register is no driver.
	delete(texts, "store/doc.go")
	schemes, faults := checkDrivers(files, texts)
	if len(schemes) < 5 {
		t.Errorf("only the schemes %q were found", schemes)
	}
	report(t, faults)
}

func TestHouseDriverRuleBites(t *testing.T) {
	files := []source{at("store/xxstore/url.go"), at("store/xxstore/a_test.go"), at("cmd/fencepost/clouds.go", module+"/store/xxstore")}
	good := map[string]string{
		"store/xxstore/url.go":    `func init() { store.Register("xx", open) }`,
		"store/xxstore/a_test.go": `store.Register("yy", open)`,
		"store/open.go":           "\n\t\"xx\": \"" + module + "/store/xxstore\",\n//\txx://bucket   package store/xxstore\n",
		"README.md":               "URLs are `xx://bucket`.",
		"docs/stores.md":          "| a store | `xx` |",
	}
	if schemes, faults := checkDrivers(files, good); len(schemes) != 1 || len(faults) != 0 {
		t.Errorf("a sound tree: schemes %q, faults %q", schemes, faults)
	}
	for name, c := range map[string]struct{ file, old, says string }{
		"the map":      {"store/open.go", `"xx":`, "in the map"},
		"another path": {"store/open.go", `/xxstore",`, "in the map"},
		"the comment":  {"store/open.go", "//\txx", "in the comment"},
		"the README":   {"README.md", "xx", "as a URL"},
		"the stores":   {"docs/stores.md", "xx", "as the name"},
	} {
		texts := map[string]string{}
		for file, text := range good {
			if texts[file] = text; file == c.file {
				texts[file] = strings.Replace(text, c.old, "", 1)
			}
		}
		if _, faults := checkDrivers(files, texts); len(faults) != 1 || !strings.Contains(faults[0], c.says) {
			t.Errorf("without %s: %q", name, faults)
		}
	}
	if _, faults := checkDrivers(files[:2], good); len(faults) != 1 || !strings.Contains(faults[0], "does not know xx://") {
		t.Errorf("a driver that nothing imports: %q", faults)
	}
}

// TestHouseOfDependabot wants each module, and each list of Python packages, to be one that is
// kept up to date, and nothing else.
func TestHouseOfDependabot(t *testing.T) {
	t.Chdir("../..")
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

// traps is how many published bugs of similar systems the design avoids. Each has at
// least one test that is named after it: TestT05_… in a package, T05_… in storetest.
const traps = 37

// TestHouseTraps wants a test for each of them, and a line in docs/bugs.md.
func TestHouseTraps(t *testing.T) {
	t.Chdir("../..")
	named := regexp.MustCompile(`(?m)^func TestT(\d+)_|"T(\d+)_[A-Za-z]|\{"T(\d+)_`)
	found := map[int]bool{}
	for _, f := range tree(t) {
		if !f.test() && f.dir() != "store/storetest" {
			continue
		}
		for _, m := range named.FindAllStringSubmatch(slurp(t, f.path), -1) {
			n, _ := strconv.Atoi(m[1] + m[2] + m[3])
			found[n] = true
		}
	}
	var missing []string
	page := slurp(t, "docs/bugs.md")
	for n := 1; n <= traps; n++ {
		if !found[n] {
			missing = append(missing, fmt.Sprintf("T%d", n))
		}
		if line := fmt.Sprintf("\n- **T%02d**: ", n); !strings.Contains(page, line) {
			t.Errorf("docs/bugs.md has no line %q: say what happened, and where", strings.TrimSpace(line))
		}
	}
	if len(missing) > 0 {
		t.Errorf("no test is named after %s", strings.Join(missing, ", "))
	}
}
