package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The names of guards stand in models, in documents, in tests and in the code. These
// tests keep them the same.

// guardNames are those of the code.
func guardNames(t *testing.T) map[string]bool {
	t.Helper()
	all, err := find(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, g := range all {
		names[g.name] = true
	}
	if len(names) < 40 {
		t.Fatalf("only %d guards", len(names))
	}
	return names
}

func contents(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{"..", "..", ".."}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	mutantRow = regexp.MustCompile(`(?m)^mutant: +([^|]*[^| ]) *\|`)
	tableRow  = regexp.MustCompile(`(?m)^\| ([^|]+) \| ([^|]+) \|$`)
	quoted    = regexp.MustCompile("`([a-z]+(?:-[a-z]+)*)`")
	emphasis  = regexp.MustCompile(`\*([^*]+)\*`)
	inTests   = regexp.MustCompile(`\b(?:guard|tuning):([a-z0-9-]+)`)
)

// mutantNames are those of the guards that a model's mutants take out. What follows in
// brackets tells several mutants of one guard apart; "and" joins guards of which one is
// enough.
func mutantNames(model string, guards map[string]bool) (names []string) {
	for _, m := range mutantRow.FindAllStringSubmatch(model, -1) {
		name, _, _ := strings.Cut(m[1], " (")
		if both := strings.Split(name, " and "); len(both) > 1 && guards[both[0]] {
			names = append(names, both...)
		} else {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// section is the part of a document below a heading.
func section(t *testing.T, doc, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(doc, "\n"+heading+"\n")
	if !found {
		t.Fatalf("there is no heading %q", heading)
	}
	if before, _, more := strings.Cut(rest, "\n#"); more {
		return before
	}
	return rest
}

// strayMutants returns what is wrong with the mutants of the models: those that are
// neither a guard of the code nor listed as something that no single line keeps, and what
// is listed and no mutant, or a guard after all.
func strayMutants(models map[string]string, listed []string, guards map[string]bool) (wrong []string) {
	used := map[string]bool{}
	for _, model := range slices.Sorted(maps.Keys(models)) {
		for _, name := range mutantNames(models[model], guards) {
			used[name] = true
			if !guards[name] && !slices.Contains(listed, name) {
				wrong = append(wrong, model+": "+name+" is no guard of the code")
			}
		}
	}
	for _, name := range listed {
		if !used[name] {
			wrong = append(wrong, name+" is listed, and no mutant")
		}
		if guards[name] {
			wrong = append(wrong, name+" is listed, and a guard of the code")
		}
	}
	return wrong
}

// strangers are the names in backquotes that no guard has. A single word may be something
// else; words says which.
func strangers(doc string, guards map[string]bool, words ...string) (names []string) {
	for _, m := range quoted.FindAllStringSubmatch(doc, -1) {
		if !guards[m[1]] && !slices.Contains(words, m[1]) {
			names = append(names, m[1])
		}
	}
	return names
}

func models(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "..", "..", "spec", "*.pml"))
	if err != nil || len(paths) < 7 {
		t.Fatalf("models: %q, %v", paths, err)
	}
	all := map[string]string{}
	for _, path := range paths {
		name := filepath.Base(path)
		all[strings.TrimSuffix(name, ".pml")] = contents(t, "spec", name)
	}
	return all
}

// A mutant of a model is named after the guard in the code that it takes out, or
// spec/README.md says why no single line of the code is it.
func TestMutantsOfModelsAreGuards(t *testing.T) {
	guards, all := guardNames(t), models(t)
	doc := section(t, contents(t, "spec", "README.md"), "## Mutants")
	listed := map[string]string{} // what each model takes out, by the page
	var elsewhere []string
	for _, row := range tableRow.FindAllStringSubmatch(doc, -1) {
		for _, phrase := range emphasis.FindAllStringSubmatch(row[1], -1) {
			elsewhere = append(elsewhere, phrase[1])
		}
		if all[row[1]] != "" {
			listed[row[1]] = row[2]
		}
	}
	for _, wrong := range strayMutants(all, elsewhere, guards) {
		t.Errorf("%s; see spec/README.md", wrong)
	}
	for model, text := range all {
		want := mutantNames(text, guards)
		var have []string
		for _, m := range append(quoted.FindAllStringSubmatch(listed[model], -1), emphasis.FindAllStringSubmatch(listed[model], -1)...) {
			have = append(have, m[1])
		}
		slices.Sort(have)
		if len(want) == 0 || !slices.Equal(have, want) {
			t.Errorf("spec/README.md says that the mutants of %s are\n\t%q; they are\n\t%q", model, have, want)
		}
	}
}

// What the documents call a guard is one.
func TestGuardsOfDocuments(t *testing.T) {
	guards := guardNames(t)
	for path, words := range map[string][]string{
		"docs/protocol.md": {"start"}, // of a manifest
		"spec/README.md":   {"manifest", "long"},
	} {
		doc := contents(t, path)
		for _, name := range strangers(doc, guards, words...) {
			t.Errorf("%s: `%s` is no guard of the code", path, name)
		}
	}
	// The ledger names commands and functions too, so only what has a hyphen counts.
	for _, name := range strangers(contents(t, "docs/bugs.md"), guards) {
		if strings.Contains(name, "-") {
			t.Errorf("docs/bugs.md: `%s` is no guard of the code", name)
		}
	}
}

// A test that says which guard it is for names one that exists.
func TestGuardsOfTests(t *testing.T) {
	guards := guardNames(t)
	root := filepath.Join("..", "..", "..")
	named := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "mutants"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		src, err := os.ReadFile(path)
		for _, m := range inTests.FindAllSubmatch(src, -1) {
			if named++; !guards[string(m[1])] {
				t.Errorf("%s: guard:%s is no guard of the code", path, m[1])
			}
		}
		return err
	})
	if err != nil || named < 40 {
		t.Errorf("%d names, %v", named, err)
	}
}

// doubles returns the names that stand for different rules in one package. The same rule may have several places.
func doubles(guards []guard) (names []string) {
	why := map[string]string{}
	for _, g := range guards {
		name := path.Dir(g.file) + ": " + g.name
		if was, ok := why[name]; ok && was != g.why {
			names = append(names, name)
		}
		why[name] = g.why
	}
	return names
}

func TestGuardsHaveNamesOfTheirOwn(t *testing.T) {
	all, err := find(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range doubles(all) {
		t.Errorf("%s names two rules: give each a name of its own", name)
	}
	two := []guard{
		{name: "void", file: "a/x.go", why: "This."}, {name: "void", file: "a/y.go", why: "This."}, {name: "void", file: "b/x.go", why: "That."},
		{name: "hole", file: "a/x.go", why: "This."}, {name: "hole", file: "a/y.go", why: "That."},
	}
	if names := doubles(two); !slices.Equal(names, []string{"a: hole"}) {
		t.Errorf("%q", names)
	}
}

// published returns the guards that stand in the doc comment of something exported: users of the package would
// read them as its documentation.
func published(file string, src []byte) (names []string, err error) {
	tree, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || slices.Contains(strings.Split(file, "/"), "internal") || !ast.FileExports(tree) {
		return nil, err
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		var doc []*ast.CommentGroup
		switch n := n.(type) {
		case *ast.File:
			doc = append(doc, n.Doc)
		case *ast.FuncDecl:
			doc = append(doc, n.Doc)
		case *ast.GenDecl:
			doc = append(doc, n.Doc)
		case *ast.TypeSpec:
			doc = append(doc, n.Doc)
		case *ast.ValueSpec:
			doc = append(doc, n.Doc)
		case *ast.Field:
			doc = append(doc, n.Doc)
		case *ast.BlockStmt:
			return false
		}
		for _, group := range doc {
			if group != nil {
				for _, c := range group.List {
					if m := mark.FindStringSubmatch(c.Text); m != nil {
						names = append(names, m[2])
					}
				}
			}
		}
		return true
	})
	return names, nil
}

func TestGuardsAreNoDocumentation(t *testing.T) {
	all, err := find(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, g := range all {
		if told[g.file] {
			continue
		}
		told[g.file] = true
		names, err := published(g.file, []byte(contents(t, g.file)))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			t.Errorf("%s: guard:%s stands in the documentation of something exported: move it into the body", g.file, name)
		}
	}
	for src, want := range map[string]string{
		"// F does.\n//\n// guard:f. It must.\nfunc F() {}":                       "f",
		"// T is.\n//\n// guard:t. It must.\ntype T struct{\n// guard:m.\nM int}": "t m",
		"// f does.\n//\n// guard:f. It must.\nfunc f() {}; var X int":            "",
		"// F does.\nfunc F() {\n// guard:f. It must.\n}":                         "",
		"func (t *t) F() {\n// guard:f. It must.\n}; type T int":                  "",
	} {
		for file, want := range map[string]string{"store/a.go": want, "store/internal/a.go": ""} {
			if names, err := published(file, []byte("package p\n"+src)); err != nil || strings.Join(names, " ") != want {
				t.Errorf("%s in %s: %q, %v, want %q", src, file, names, err, want)
			}
		}
	}
}

// A letter too many is noticed.
func TestMisspeltNames(t *testing.T) {
	guards := map[string]bool{"open-refresh": true, "void": true, "open-hint": true, "open-role": true}
	const sound = "mutant: open-refresh | -DA\nmutant: void (twice)  | -DB\nmutant: open-hint and open-role (either) | -DC\nmutant: own and proper | -DD\n"
	listed := []string{"own and proper"}
	if wrong := strayMutants(map[string]string{"log": sound}, listed, guards); len(wrong) != 0 {
		t.Errorf("%q", wrong)
	}
	for _, bent := range []string{
		strings.Replace(sound, "open-refresh", "open-refesh", 1),
		strings.Replace(sound, "void", "viod", 1),
		strings.Replace(sound, "open-role", "open-rule", 1),
		strings.Replace(sound, "own and proper", "own and propre", 1),
	} {
		if wrong := strayMutants(map[string]string{"log": bent}, listed, guards); len(wrong) == 0 {
			t.Errorf("nothing is wrong with:\n%s", bent)
		}
	}
	if wrong := strayMutants(map[string]string{"log": sound}, append(listed, "void"), guards); len(wrong) != 1 {
		t.Errorf("a guard that is listed: %q", wrong)
	}
	doc := "Not without `open-refresh`, `void` or the `start`, see `data/<epoch>`; but `open-refesh` and `viod`."
	if names := strangers(doc, guards, "start"); !slices.Equal(names, []string{"open-refesh", "viod"}) {
		t.Errorf("%q", names)
	}
}
