package house_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// This package has the rules of the tree that no linter has. Its tests run in the root of the tree. It is not
// TestMain that goes there: go test, which remembers results, would then not see which files a test has read.

// vague are names that say nothing about what a package is for.
var vague = []string{"config", "util", "utils", "types", "common", "log", "metrics", "retry", "helpers", "misc"}

// gear is what is not the core.
var gear = []string{"internal/test/...", "internal/release/...", "internal/tools/...", "bench/...", "integration/...", "cmd/..."}

// source is a Go file of the tree.
type source struct {
	path    string // with slashes, from the root
	name    string // of its package
	imports []string
	comment string   // of its package clause
	asserts []string // types of package store that a type assertion asks for
}

func (s source) dir() string  { return path.Dir(s.path) }
func (s source) test() bool   { return strings.HasSuffix(s.path, "_test.go") }
func (s source) base() string { return path.Base(s.path) }

func checkNames(files []source) (faults []string) {
	for _, f := range files {
		for _, bad := range vague {
			if slices.Contains(strings.Split(f.dir(), "/"), bad) || f.name == bad || f.name == bad+"_test" {
				faults = append(faults, fmt.Sprintf("%s: a package called %q says nothing: name it after what it holds", f.path, bad))
			}
		}
	}
	return faults
}

// checkAsserts wants optional interfaces of stores looked for with store.As: a wrapper may stand before the
// store that has them.
func checkAsserts(files []source) (faults []string) {
	for _, f := range files {
		for _, what := range f.asserts {
			if !f.test() && !matches("store/...", f.dir()) && what != "store.Store" {
				faults = append(faults, fmt.Sprintf("%s asserts %s: use store.As, which looks behind wrappers", f.path, what))
			}
		}
	}
	return faults
}

// checkComments wants one package comment in each package, in doc.go or in the
// file that has the package's name (main.go for a command).
func checkComments(files []source) (faults []string) {
	found := map[string][]string{}
	names := map[string]string{}
	for _, f := range files {
		if f.test() {
			continue
		}
		names[f.dir()] = f.name
		if f.comment == "" {
			continue
		}
		found[f.dir()] = append(found[f.dir()], f.path)
		if f.base() != "doc.go" && f.base() != f.name+".go" {
			faults = append(faults, fmt.Sprintf("%s: the package comment belongs in doc.go", f.path))
		}
		if want := "Package " + f.name + " "; f.name != "main" && !strings.HasPrefix(f.comment, want) {
			faults = append(faults, fmt.Sprintf("%s: the package comment must begin with %q", f.path, want))
		}
	}
	for dir := range names {
		if n := len(found[dir]); n != 1 {
			faults = append(faults, fmt.Sprintf("package %s has %d package comments %v, want one", dir, n, found[dir]))
		}
	}
	slices.Sort(faults)
	return faults
}

// tree returns all Go files, those of nested modules included.
func tree(t *testing.T) []source {
	t.Helper()
	files, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(files)
}

// parsed reads the tree, once for all tests.
var parsed = sync.OnceValues(func() (files []source, err error) {
	err = filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := p != "." && strings.HasPrefix(d.Name(), ".")
		if d.IsDir() && (hidden || d.Name() == "testdata" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if d.IsDir() || hidden || !strings.HasSuffix(p, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		s, err := read(filepath.ToSlash(p), src)
		files = append(files, s)
		return err
	})
	return files, err
})

func read(p string, src []byte) (source, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return source{}, err
	}
	s := source{path: p, name: file.Name.Name, comment: file.Doc.Text()}
	for _, imp := range file.Imports {
		if name, err := strconv.Unquote(imp.Path.Value); err == nil {
			s.imports = append(s.imports, name)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if a, ok := n.(*ast.TypeAssertExpr); ok && a.Type != nil {
			if what := types.ExprString(a.Type); strings.HasPrefix(what, "store.") {
				s.asserts = append(s.asserts, what)
			}
		}
		return true
	})
	return s, nil
}

// receiver returns the type that a method belongs to, or "" for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return ""
	}
	name, _, _ := strings.Cut(types.ExprString(fn.Recv.List[0].Type), "[")
	return strings.TrimPrefix(name, "*")
}

// except leaves out the faults that are allowed, and finds fault with what is allowed
// in vain.
func except(allowed iter.Seq[string], check func(fault func(name, text string))) (faults []string) {
	used := map[string]bool{}
	for name := range allowed {
		used[name] = false
	}
	check(func(name, text string) {
		if _, ok := used[name]; ok {
			used[name] = true
			return
		}
		faults = append(faults, name+" "+text)
	})
	for name, used := range used {
		if !used {
			faults = append(faults, name+" needs no exception any more: delete it from the table")
		}
	}
	slices.Sort(faults)
	return faults
}

// report makes each fault one of the test's.
func report(t *testing.T, faults []string) {
	t.Helper()
	for _, fault := range faults {
		t.Error(fault)
	}
}

func TestHouseOfFiles(t *testing.T) {
	t.Chdir("../..")
	files := tree(t)
	for name, faults := range map[string][]string{
		"names": checkNames(files), "comments": checkComments(files), "assertions": checkAsserts(files),
	} {
		t.Run(name, func(t *testing.T) { report(t, faults) })
	}
}

// TestHouseFileRulesBite gives each rule a file that breaks it.
func TestHouseFileRulesBite(t *testing.T) {
	asserts := func(file string) source {
		s, err := read(file, []byte("package p\n\nfunc f() { _, ok := x.(store.UploadAborter) }\n"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for name, c := range map[string]struct {
		check func([]source) []string
		file  source
		says  string // nothing if the file keeps the rule
	}{
		"a vague package":                   {checkNames, at("internal/util/a.go"), `"util"`},
		"a vague folder":                    {checkNames, at("internal/common/thing/a.go"), `"common"`},
		"an assertion":                      {checkAsserts, asserts("compactor/a.go"), "use store.As"},
		"an assertion of a driver":          {checkAsserts, asserts("store/s3store/a.go"), ""},
		"an assertion of a test":            {checkAsserts, asserts("compactor/a_test.go"), ""},
		"no package comment":                {checkComments, source{path: "writer/a.go", name: "writer"}, "0 package comments"},
		"a package comment in a wrong file": {checkComments, at("writer/append.go"), "belongs in doc.go"},
		"a comment that does not say whose": {checkComments, source{path: "writer/doc.go", name: "writer", comment: "Writes."}, "must begin"},
	} {
		faults := c.check([]source{c.file})
		if c.says == "" && len(faults) > 0 || c.says != "" && (len(faults) != 1 || !strings.Contains(faults[0], c.says)) {
			t.Errorf("%s: got %q, want one fault that says %q", name, faults, c.says)
		}
	}
}
