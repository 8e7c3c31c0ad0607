package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var sentence = regexp.MustCompile("[.!?] [A-Z`_]")

// faults returns what is wrong with how guards are told: each has one sentence in the code, and one counterexample
// at a test. Until that is so, the code has both.
func faults(guards []guard) (wrong []string) {
	for _, g := range guards {
		bad := func(format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s: ", g.file, g.line, g.name)+fmt.Sprintf(format, args...))
		}
		switch inCode := counterexample.MatchString(g.why); {
		case inCode && len(g.stories) > 0:
			bad("it is told here and at %s", g.stories[0].where())
		case !inCode && len(g.stories) == 0 && !g.tuning:
			bad("no test tells what happens without it")
		case inCode && g.tuning:
			bad("tuning has one sentence here; the rest belongs to its test")
		case len(g.stories) > 1:
			bad("it is told by %s and by %s", g.stories[0].where(), g.stories[1].where())
		case !inCode && sentence.MatchString(g.why):
			bad("it has more than one sentence in the code: %s", g.why)
		}
		for _, s := range g.stories {
			if s.tuning != g.tuning {
				bad("%s takes it for tuning: %v", s.where(), s.tuning)
			}
		}
	}
	return wrong
}

// TestGuardsAreTold: of the tree.
func TestGuardsAreTold(t *testing.T) {
	all, err := find(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range faults(all) {
		t.Error(wrong)
	}
}

// TestStories: where a story may stand, and which test it names.
func TestStories(t *testing.T) {
	for src, want := range map[string]string{
		"// TestA checks.\n//\n// guard:a. Without\n// it: bad.\n//\n// More.\nfunc TestA() {}": "a ^TestA$ Without it: bad.",
		"// tuning:a. Rule. Without it: slow.\n// guard:b. Without it.\nfunc TestA() {}":        "a ^TestA$ Rule. Without it: slow.; b ^TestA$ Without it.",
		"func TestB() {\n\t// guard:a. Without it.\n\tf()\n}\nfunc TestC() {}":                  "a ^TestB$ Without it.",
		"// guard:a.\nfunc TestA() {\n\t// guard:a. A mention.\n\tf()\n}":                       "",
		"// guard:a. Without it.\nfunc helper() {}":                                             "error",
		"// guard:a. Without it.\nfunc (s *suite) TestA() {}":                                   "error",
		"// guard:a. Without it.\n\nfunc TestA() {}":                                            "error",
	} {
		all, err := storiesOf("x/y_test.go", []byte("package y\n\n"+src+"\n"))
		var have []string
		for _, s := range all {
			have = append(have, s.name+" "+s.test+" "+s.text)
		}
		if got := strings.Join(have, "; "); err == nil && got != want || err != nil && want != "error" {
			t.Errorf("%s\n\thas %q, %v; want %q", src, got, err, want)
		}
	}
	all, err := storiesOf("x/testdata/z.txt", []byte("# A life.\n#\n# guard:a. Without\n# it.\nleader\n# not this\n"))
	if err != nil || len(all) != 1 || all[0].text != "Without it." || all[0].dir != "x" || all[0].test != "^TestScripts$/^z$" || all[0].where() != "TestScripts/z in x" {
		t.Errorf("the story of a script is %+v, %v", all, err)
	}
}

// TestFaults: too few stories, too many, and too long a rule.
func TestFaults(t *testing.T) {
	one := []story{{test: "^TestA$", text: "Without it."}}
	for _, row := range []struct {
		g    guard
		want string
	}{
		{guard{why: "It must.", stories: one}, ""},
		{guard{why: "It must. Without it: bad."}, ""},
		{guard{why: "It must. Without it: bad.", stories: one}, "told here and at"},
		{guard{why: "It must."}, "no test tells"},
		{guard{why: "It must.", stories: slices.Concat(one, one)}, "told by"},
		{guard{why: "It must. It really must.", stories: one}, "more than one sentence"},
		{guard{why: "It must.", tuning: true}, ""},
		{guard{why: "It must.", tuning: true, stories: one}, "takes it for tuning"},
	} {
		if got := strings.Join(faults([]guard{row.g}), "; "); (got == "") != (row.want == "") || !strings.Contains(got, row.want) {
			t.Errorf("%+v: %q, want %q", row.g, got, row.want)
		}
	}
}

// TestStranger: a guard that another test than its own has killed is told.
func TestStranger(t *testing.T) {
	g := guard{name: "x", file: "a/x.go", stories: []story{{test: "^TestX$", dir: "a"}}}
	if w := (fate{test: "TestX in a", where: namedTest}).stranger(g); w != "" {
		t.Errorf("%q of the named test", w)
	}
	if w := (fate{test: "TestY in a", where: ownTests}).stranger(g); !strings.Contains(w, "TestX in a") || !strings.Contains(w, "TestY") {
		t.Errorf("%q of another test", w)
	}
	if w := (fate{where: ownTests}).stranger(g); w != "" {
		t.Errorf("%q of a mutant that lives", w)
	}
}
