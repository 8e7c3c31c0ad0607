package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// guard is a place in the code that keeps a promise of the protocol, or, if it is tuning, saves time or money.
type guard struct {
	name   string
	tuning bool
	file   string // below the root, with slashes
	line   int
	// why is the paragraph of the comment that names the guard: its rule.
	why string
	// stories are what the tests tell of it: a sound guard has one.
	stories []story
	// mutant is the file without the guard.
	mutant []byte
	// what the mutant changes, for people.
	what string
	// err says why there is no mutant.
	err error
}

var (
	mark      = regexp.MustCompile(`^//\s*(guard|tuning):([a-z0-9-]+)\.?`)
	directive = regexp.MustCompile(`^//mutant:replace (.*?) =>(?: (.*))?$`)
)

// find returns all guards and all tuning below root with their stories, in the order of files and lines.
func find(root string) ([]guard, error) {
	all, err := findGuards(root)
	if err != nil {
		return nil, err
	}
	return all, tell(root, all)
}

func findGuards(root string) ([]guard, error) {
	var all []guard
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "mutants") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Contains(src, []byte("guard:")) && !bytes.Contains(src, []byte("tuning:")) {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		found, err := inFile(filepath.ToSlash(rel), src)
		all = append(all, found...)
		return err
	})
	return all, err
}

// inFile returns the guards of one file.
func inFile(file string, src []byte) ([]guard, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var all []guard
	for _, group := range tree.Comments {
		var lines []string
		var swaps [][2]string
		for _, c := range group.List {
			lines = append(lines, c.Text)
			if m := directive.FindStringSubmatch(c.Text); m != nil {
				swaps = append(swaps, [2]string{m[1], m[2]})
			}
		}
		for _, p := range paragraphs(lines) {
			g := guard{name: p.name, tuning: p.tuning, file: file, line: fset.Position(group.Pos()).Line, why: p.text}
			if len(swaps) > 0 {
				g.mutant, g.what, g.err = replace(src, tree, fset, group, swaps)
			} else {
				g.mutant, g.what, g.err = disable(src, tree, fset, group)
			}
			all = append(all, g)
		}
	}
	return all, nil
}

// replace carries out the guard's own mutant:replace lines, between the comment and the
// end of the function.
func replace(src []byte, tree *ast.File, fset *token.FileSet, at *ast.CommentGroup, swaps [][2]string) ([]byte, string, error) {
	begin, end := offset(fset, at.End()), len(src)
	for _, d := range tree.Decls {
		if at.End() <= d.End() {
			end = offset(fset, d.End())
			break
		}
	}
	body := string(src[begin:end])
	var what []string
	for _, s := range swaps {
		if !strings.Contains(body, s[0]) {
			return nil, "", fmt.Errorf("there is no %q between the comment and the end of the function", s[0])
		}
		body = strings.Replace(body, s[0], s[1], 1)
		what = append(what, fmt.Sprintf("%s => %s", s[0], s[1]))
	}
	return slices.Concat(src[:begin], []byte(body), src[end:]), strings.Join(what, "; "), nil
}

// disable finds the condition that a comment belongs to and makes it a constant.
func disable(src []byte, tree *ast.File, fset *token.FileSet, at *ast.CommentGroup) ([]byte, string, error) {
	var cond ast.Expr
	constant := ""
	next := at.End() + 1<<30
	consider := func(n ast.Node, c ast.Expr, to string) {
		if n.Pos() > at.End() && n.Pos() < next {
			next, cond, constant = n.Pos(), c, to
		}
	}
	statements := func(list []ast.Stmt) {
		for _, s := range list {
			var c ast.Expr
			if s, ok := s.(*ast.IfStmt); ok {
				c = s.Cond
			}
			consider(s, c, "false")
		}
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BlockStmt:
			statements(n.List)
		case *ast.IfStmt:
			if first(at, n.Body.Lbrace, n.Body.List) {
				next, cond, constant = at.End(), n.Cond, "false"
			}
		case *ast.CaseClause:
			if len(n.List) == 1 && first(at, n.Colon, n.Body) {
				next, cond, constant = at.End(), n.List[0], "false"
			}
			statements(n.Body)
		case *ast.BinaryExpr:
			if n.Op == token.LAND {
				consider(n.X, n.X, "true")
				consider(n.Y, n.Y, "true")
			}
		}
		return true
	})
	if cond == nil {
		return nil, "", fmt.Errorf("no condition belongs to it; say what the mutant is with //mutant:replace OLD => NEW")
	}
	begin, end := offset(fset, cond.Pos()), offset(fset, cond.End())
	text := string(src[begin:end])
	mutant := "(" + constant + " && (" + text + "))"
	if constant == "true" {
		mutant = "(true || (" + text + "))"
	}
	return slices.Concat(src[:begin], []byte(mutant), src[end:]), text + " => " + constant, nil
}

// first reports whether a body begins with the comment.
func first(at *ast.CommentGroup, open token.Pos, body []ast.Stmt) bool {
	return open < at.Pos() && len(body) > 0 && at.End() < body[0].Pos()
}

func offset(fset *token.FileSet, p token.Pos) int { return fset.Position(p).Offset }
