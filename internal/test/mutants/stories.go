package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// story is a guard's counterexample: what happens without it. It stands with the test that
// fails without the guard.
type story struct {
	name   string
	tuning bool
	text   string
	dir    string // the test's package, below the root
	file   string
	test   string // the argument of -run that runs this test alone
}

// counterexample tells a story from what a test says about a guard otherwise.
var counterexample = regexp.MustCompile(`\bWithout\b`)

var testName = regexp.MustCompile(`^(Test|Fuzz)[^a-z]`)

// tell gives each guard its story from the tests below root. A story belongs to the guards of its name in
// its own package, or, if that has none, to those in other packages whose tests do not tell one.
func tell(root string, guards []guard) error {
	stories, err := findStories(root)
	if err != nil {
		return err
	}
	here := map[string][]story{} // by package and name
	far := map[string][]story{}  // by name: those in packages without such a guard
	for _, s := range stories {
		i := slices.IndexFunc(guards, func(g guard) bool { return g.name == s.name && path.Dir(g.file) == s.dir })
		if i >= 0 {
			here[s.dir+" "+s.name] = append(here[s.dir+" "+s.name], s)
		} else {
			far[s.name] = append(far[s.name], s)
		}
	}
	for i := range guards {
		g := &guards[i]
		g.stories = here[path.Dir(g.file)+" "+g.name]
		if len(g.stories) == 0 {
			g.stories = far[g.name]
		}
	}
	return nil
}

// findStories returns all stories of tests below root: those in comments, and those in remarks of the scripts that TestScripts plays.
func findStories(root string) (all []story, err error) {
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() {
			if name != root && (strings.HasPrefix(base, ".") || base == "mutants") {
				return fs.SkipDir
			}
			return nil
		}
		script := strings.HasSuffix(base, ".txt") && filepath.Base(filepath.Dir(name)) == "testdata"
		if !script && !strings.HasSuffix(base, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(src, []byte("guard:")) && !bytes.Contains(src, []byte("tuning:")) {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		told, err := storiesOf(filepath.ToSlash(rel), src)
		all = append(all, told...)
		return err
	})
	return all, err
}

// storiesOf returns the stories of one file.
func storiesOf(file string, src []byte) (all []story, err error) {
	if strings.HasSuffix(file, ".txt") {
		dir, base := path.Split(file)
		s := story{dir: path.Dir(path.Clean(dir)), file: file, test: "^TestScripts$/^" + strings.TrimSuffix(base, ".txt") + "$"}
		return appendStories(nil, s, remarks(src)), nil
	}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range tree.Comments {
		s := story{dir: path.Dir(file), file: file}
		for _, d := range tree.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && (f.Doc == group || f.Pos() <= group.Pos() && group.End() <= f.End()) && f.Recv == nil && testName.MatchString(f.Name.Name) {
				s.test = "^" + f.Name.Name + "$"
			}
		}
		lines := make([]string, 0, len(group.List))
		for _, c := range group.List {
			lines = append(lines, c.Text)
		}
		before := len(all)
		if all = appendStories(all, s, lines); len(all) > before && s.test == "" {
			return nil, fmt.Errorf("%s:%d: the story of %s does not stand with a test: put it into the comment or the body of one",
				file, fset.Position(group.Pos()).Line, all[before].name)
		}
	}
	return all, nil
}

// remarks are the remarks of a script as comments; an empty line is what ends each.
func remarks(src []byte) (lines []string) {
	for line := range strings.Lines(string(src)) {
		line = strings.TrimSpace(line)
		if text, ok := strings.CutPrefix(line, "#"); ok {
			line = "//" + text
		} else {
			line = "//"
		}
		lines = append(lines, line)
	}
	return lines
}

// appendStories appends the paragraphs that begin with a guard's name and tell what happens without it.
func appendStories(all []story, s story, lines []string) []story {
	for _, p := range paragraphs(lines) {
		if counterexample.MatchString(p.text) {
			s.name, s.tuning, s.text = p.name, p.tuning, p.text
			all = append(all, s)
		}
	}
	return all
}

type paragraph struct {
	name, text string
	tuning     bool
}

// paragraphs returns what follows each mark in the lines of a comment.
func paragraphs(lines []string) (all []paragraph) {
	open := false // whether the paragraph of the last mark goes on
	for _, line := range lines {
		text := strings.TrimSpace(strings.TrimPrefix(line, "//"))
		if m := mark.FindStringSubmatch(line); m != nil {
			all = append(all, paragraph{name: m[2], tuning: m[1] == "tuning"})
			open, text = true, strings.TrimSpace(strings.TrimPrefix(line, m[0]))
		}
		if open = open && text != "" && !directive.MatchString(line); open {
			p := &all[len(all)-1]
			p.text = strings.TrimSpace(p.text + " " + text)
		}
	}
	return all
}

// where names the story's test for people.
func (s story) where() string {
	return strings.NewReplacer("^", "", "$", "").Replace(s.test) + " in " + s.dir
}
