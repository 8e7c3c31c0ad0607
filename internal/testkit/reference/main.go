package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	all, err := pages(".")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for name, text := range all {
		if err := os.WriteFile(filepath.Join("docs", name), []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// made says on each page where it comes from.
const made = "\n<!-- Made by make reference. -->\n"

// pages returns the pages by name. Root is the root of the tree.
func pages(root string) (map[string]string, error) {
	files, err := parse(root)
	if err != nil {
		return nil, err
	}
	return map[string]string{"options.md": options(files), "messages.md": messages(files)}, nil
}

// file is a parsed file of the tree.
type file struct {
	dir string // with slashes, from the root
	ast *ast.File
}

// outside are folders whose code users of the library do not run.
var outside = []string{"bench", "examples", "integration", "internal/testkit", "internal/release", "spec"}

// parse reads the files that are not tests, in order.
func parse(root string) (all []file, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		rel = filepath.ToSlash(rel)
		if d.IsDir() {
			if rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" || slices.Contains(outside, rel)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(fset, p, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, file{path.Dir(rel), f})
		return nil
	})
	return all, err
}

// reference is the name of a thing in a comment, as go doc writes it.
var reference = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// cell makes text fit for a cell of a table.
func cell(text string) string {
	text = reference.ReplaceAllString(strings.Join(strings.Fields(text), " "), "$1")
	for _, r := range []string{"|", "<", ">", "*", "_", "[", "]"} {
		text = strings.ReplaceAll(text, r, `\`+r)
	}
	return text
}

// options makes a table of the fields of each type that is called Options, …Options or Hooks.
func options(files []file) string {
	sections := map[string]string{}
	for _, f := range files {
		if strings.Contains("/"+f.dir+"/", "/internal/") || strings.HasPrefix(f.dir, "cmd/") || f.dir == "store/storetest" {
			continue
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range g.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok || !t.Name.IsExported() || !strings.HasSuffix(t.Name.Name, "Options") && t.Name.Name != "Hooks" {
					continue
				}
				s, ok := t.Type.(*ast.StructType)
				if !ok || len(s.Fields.List) == 0 {
					continue
				}
				name := f.ast.Name.Name + "." + t.Name.Name
				sections[name] = section(name, t, g, s)
			}
		}
	}
	var b strings.Builder
	b.WriteString("# Options\n" + made + "\nThese are the fields of each type of options, with the comments in the code. The zero value of each field is its default. Numbers to choose are on the page [Run a log](operations.md#numbers-to-choose).\n")
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range sections {
			if !yield(name) {
				return
			}
		}
	}) {
		b.WriteString(sections[name])
	}
	return b.String()
}

func section(name string, t *ast.TypeSpec, g *ast.GenDecl, s *ast.StructType) string {
	var b strings.Builder
	about := t.Doc.Text()
	if about == "" {
		about = g.Doc.Text()
	}
	about, _, _ = strings.Cut(strings.TrimSpace(about), "\n\n")
	fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| field | type | what it is |\n|---|---|---|\n", name, cell(about))
	before := ""
	for _, field := range s.Fields.List {
		for _, n := range field.Names {
			if !n.IsExported() {
				continue
			}
			text := field.Doc.Text()
			if text == "" {
				text = field.Comment.Text()
			}
			if text == "" && before != "" {
				text = "See " + before + "."
			} else {
				before = n.Name
			}
			fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", n.Name, strings.ReplaceAll(types.ExprString(field.Type), "|", `\|`), cell(text))
		}
	}
	return b.String()
}

// message is a line of a log.
type message struct {
	text, level string
	fields      []string
	where       []string
}

// messages makes a table of the calls of loggers whose text is a constant.
func messages(files []file) string {
	found := map[string]*message{}
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if m := logged(call); m != nil {
				old := found[m.text+m.level]
				if old == nil {
					found[m.text+m.level], old = m, m
				}
				where := strings.TrimPrefix(f.dir, "./")
				if where == "." {
					where = "fencepost"
				}
				if where = "`" + where + "`"; !slices.Contains(old.where, where) {
					old.where = append(old.where, where)
				}
			}
			return true
		})
	}
	var all []*message
	for _, m := range found {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *message) int { return strings.Compare(a.text+a.level, b.text+b.level) })
	var b strings.Builder
	b.WriteString("# Log messages\n" + made + "\nThese are the lines that the packages log, with the names of their fields. [When something is wrong](runbook.md) says what to do about the important ones.\n\n| message | level | fields | package |\n|---|---|---|---|\n")
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(m.text), m.level, strings.Join(m.fields, ", "), strings.Join(m.where, ", "))
	}
	return b.String()
}

// logged returns what a call logs, or nil if it is not a call of a logger.
func logged(call *ast.CallExpr) *message {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !strings.Contains(strings.ToLower(types.ExprString(sel.X)), "log") {
		return nil
	}
	args := call.Args
	var level string
	switch sel.Sel.Name {
	case "Debug", "Info", "Warn", "Error":
		level = strings.ToLower(sel.Sel.Name)
	case "Log":
		level = "varies"
		if len(args) > 0 {
			args = args[1:]
		}
	default:
		return nil
	}
	if len(args) == 0 {
		return nil
	}
	lit, ok := args[0].(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return nil
	}
	text, err := strconv.Unquote(lit.Value)
	if err != nil {
		return nil
	}
	m := &message{text: text, level: level}
	for _, arg := range args[1:] {
		ast.Inspect(arg, func(n ast.Node) bool {
			field, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := field.Fun.(*ast.SelectorExpr)
			if !ok || types.ExprString(f.X) != "zap" {
				return true
			}
			name := "error"
			if len(field.Args) > 1 {
				if key, ok := field.Args[0].(*ast.BasicLit); ok {
					name, _ = strconv.Unquote(key.Value)
				}
			}
			m.fields = append(m.fields, "`"+name+"`")
			return true
		})
	}
	return m
}
