// Command numbers prints how large the house is, with the goals of issue 36. Code is lines without comments
// and blank ones; lines are all, and those of test gear count as source.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
)

const (
	face   = `^(fence|manifest|store|leader|writer|reader|compactor)$`
	core   = `^(\.|fence|leader|manifest|writer|reader|compactor|clock|store|internal/.*)$`
	noCore = `^internal/(test|house|tools|release|member|assign)\b`
	ext    = `^((cmd|ext)/.*|(group|kubelock|delta|rewrite|promhooks|otelhooks)\b.*)$`
	groups = `^(rungroup|compactgroup|calm)` // files in the root that will be ext
)

// rows are the sums, in the order in which they are printed, with their goals.
var rows = []struct{ name, goal string }{
	{"core without drivers and groups, code", "14500"},
	{"root module, source", "36000"}, {"root module, tests", "45000"},
	{"command line, code", "8500"},
	{"all, source", "72000"}, {"all, tests", "85000"},
	{"files of ext and cmd that import internal", "0"},
	{"entries in the root", "40"}, {"Go files there", "9"},
	{"exported, seven packages of the face", "200"}, {"exported, all, with values", "480"},
	{"README, words", "1000"}, {"docs without guards and format, words", "35000"},
	{"lines of the Makefile", "120"},
}

func main() {
	sums, nested := map[string]int{}, map[string]bool{}
	add := func(is bool, name string, n int) {
		if is {
			sums[name] += n
		}
	}
	err := fs.WalkDir(os.DirFS("."), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "." {
			return err
		}
		skip := match(`^(\..+|testdata|node_modules|dist)$`, d.Name())
		add(!strings.Contains(p, "/") && p != ".git" && p != ".cache" && p != "dist", "entries in the root", 1)
		if d.IsDir() && skip {
			return fs.SkipDir
		} else if d.IsDir() {
			_, err := os.Stat(p + "/go.mod")
			nested[p] = err == nil || nested[path.Dir(p)]
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		lines, words, dir := bytes.Count(src, []byte("\n")), len(strings.Fields(string(src))), path.Dir(p)
		add(p == "Makefile", "lines of the Makefile", lines)
		add(p == "README.md", "README, words", words)
		add(match(`^docs/.*\.md$`, p) && !match(`^docs/(guards|format)\.md$`, p), "docs without guards and format, words", words)
		if path.Ext(p) != ".go" {
			return nil
		}
		add(dir == ".", "Go files there", 1)
		if strings.HasSuffix(p, "_test.go") {
			add(true, "all, tests", lines)
			add(!nested[dir], "root module, tests", lines)
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, p, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		if ast.IsGenerated(file) {
			return nil
		}
		add(true, "all, source", lines)
		add(!nested[dir], "root module, source", lines)
		code, names, values := code(fset, file, src), names(file, false), names(file, true)
		isExt := match(ext, dir) || match(groups, p)
		add(match(core, dir) && !match(noCore, dir), "core without drivers and groups, code", code)
		add(match(`^cmd/fencepost\b`, dir), "command line, code", code)
		add(isExt && bytes.Contains(src, []byte("\"github.com/fencepost/fencepost/internal/")), "files of ext and cmd that import internal", 1)
		public := file.Name.Name != "main" && !match(`\binternal\b|^(bench|integration|examples)\b`, dir)
		add(public, "exported, all, with values", names+values)
		add(public && match(face, dir), "exported, seven packages of the face", names)
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "numbers:", err)
		os.Exit(1)
	}
	fmt.Printf("%-42s%8s%8s\n", "", "is", "goal")
	for _, row := range rows {
		fmt.Printf("%-42s%8d%8s\n", row.name, sums[row.name], row.goal)
	}
}

func match(re, s string) bool { return regexp.MustCompile(re).MatchString(s) }

// code counts the lines that are not blank without the comments.
func code(fset *token.FileSet, file *ast.File, src []byte) (n int) {
	bare := bytes.Clone(src)
	for _, group := range file.Comments {
		for _, c := range group.List {
			for i := fset.Position(c.Pos()).Offset; i < fset.Position(c.End()).Offset && i < len(bare); i++ {
				if bare[i] != '\n' {
					bare[i] = ' '
				}
			}
		}
	}
	for line := range bytes.Lines(bare) {
		if len(bytes.TrimSpace(line)) > 0 {
			n++
		}
	}
	return n
}

// names counts exported types, functions and methods, the lines of "go doc -all" that begin with type or func, or
// exported values.
func names(file *ast.File, values bool) (n int) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !values && d.Name.IsExported() && (d.Recv == nil || match(`^\*?[A-Z]`, types.ExprString(d.Recv.List[0].Type))) {
				n++
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if t, ok := s.(*ast.TypeSpec); ok && !values && t.Name.IsExported() {
					n++
				} else if v, ok := s.(*ast.ValueSpec); ok && values {
					for _, name := range v.Names {
						if name.IsExported() {
							n++
						}
					}
				}
			}
		}
	}
	return n
}
