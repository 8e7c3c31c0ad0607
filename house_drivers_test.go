package fencepost_test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file has the rule for drivers of stores: a scheme that is registered can be found. The
// tables of docs/internals.md are checked in places_test.go.

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
