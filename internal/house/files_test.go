package house_test

import (
	"bytes"
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

// maxLines and maxBody are the lengths at which a file and a function of the core are
// too long to be understood at once.
const (
	maxLines = 600
	maxBody  = 80
)

// gear is what is not the core, so its functions may be longer.
var gear = []string{"internal/testkit/...", "internal/release/...", "internal/tools/...", "bench/...", "integration/...", "cmd/..."}

// long are functions of the core that are longer. This list may only shrink.
var long []string

// source is a Go file of the tree.
type source struct {
	path    string // with slashes, from the root
	name    string // of its package
	imports []string
	comment string // of its package clause
	lines   int
	funcs   []function
	asserts []string // types of package store that a type assertion asks for
}

// function is one with a body, and how many lines it has.
type function struct {
	name  string // with its receiver's type, if it has one
	lines int
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

func checkSizes(files []source) (faults []string) {
	for _, f := range files {
		if f.lines > maxLines {
			faults = append(faults, fmt.Sprintf("%s has %d lines; past %d a file wants splitting", f.path, f.lines, maxLines))
		}
	}
	return faults
}

// checkFunctions wants short functions in the core, but for those that are allowed.
func checkFunctions(files []source, allowed []string) []string {
	return except(slices.Values(allowed), func(fault func(name, text string)) {
		for _, f := range files {
			for _, fn := range f.funcs {
				if fn.lines > maxBody && !f.test() && !matchesAny(gear, f.dir()) {
					fault(f.dir()+"."+fn.name, fmt.Sprintf("in %s has %d lines; past %d a function wants splitting", f.path, fn.lines, maxBody))
				}
			}
		}
	})
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
	s := source{path: p, name: file.Name.Name, comment: file.Doc.Text(), lines: bytes.Count(src, []byte("\n"))}
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
	for _, d := range file.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		name := strings.TrimPrefix(receiver(fn)+"."+fn.Name.Name, ".")
		s.funcs = append(s.funcs, function{name, fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1})
	}
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
		"names": checkNames(files), "sizes": checkSizes(files), "functions": checkFunctions(files, long), "comments": checkComments(files), "assertions": checkAsserts(files),
	} {
		t.Run(name, func(t *testing.T) { report(t, faults) })
	}
}

// TestHouseFileRulesBite gives each rule a file that breaks it.
func TestHouseFileRulesBite(t *testing.T) {
	functions := func(allowed ...string) func([]source) []string {
		return func(files []source) []string { return checkFunctions(files, allowed) }
	}
	body := func(file string, lines int) source {
		src := "package writer\n\n// Long is long.\nfunc (w *Writer) Long() {" + strings.Repeat("\n", lines-1) + "}\n"
		s, err := read(file, []byte(src))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
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
		"a long file":                       {checkSizes, source{path: "writer/a.go", lines: maxLines + 1}, "splitting"},
		"a long file of tests":              {checkSizes, source{path: "writer/a_test.go", lines: maxLines + 1}, "splitting"},
		"a file of the greatest length":     {checkSizes, source{path: "writer/a.go", lines: maxLines}, ""},
		"an assertion":                      {checkAsserts, asserts("compactor/a.go"), "use store.As"},
		"an assertion of a driver":          {checkAsserts, asserts("store/s3store/a.go"), ""},
		"an assertion of a test":            {checkAsserts, asserts("compactor/a_test.go"), ""},
		"a long function":                   {functions(), body("writer/a.go", maxBody+1), "writer.Writer.Long in writer/a.go has 81 lines"},
		"one of the greatest length":        {functions(), body("writer/a.go", maxBody), ""},
		"a long function of a test":         {functions(), body("writer/a_test.go", maxBody+1), ""},
		"a long function of a benchmark":    {functions(), body("bench/history/a.go", maxBody+1), ""},
		"a long function on the list":       {functions("writer.Writer.Long"), body("writer/a.go", maxBody+1), ""},
		"a short function on the list":      {functions("writer.Writer.Long"), body("writer/a.go", maxBody), "needs no exception"},
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
