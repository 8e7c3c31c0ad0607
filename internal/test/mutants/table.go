package main

import (
	"bytes"
	"fmt"
	"path"
	"strings"
)

// page is the file that holds [table], below the root.
const page = "docs/guards.md"

// table is a page of all guards by package: the rule from the code, and the counterexample from the test.
func table(guards []guard) []byte {
	var b bytes.Buffer
	b.WriteString(`# Guards

Every place in the code that keeps one of the promises has a name and a rule. Beside the rule stands what happens without it, in the words of the test that
then fails. ` + "`make guards`" + ` writes this page from the code and the tests. [The protocol](protocol.md) tells how the more important guards belong together.
` + "`make mutants`" + ` takes each one out in turn, and requires that a test fails: first the one that is named here.
`)
	dir := ""
	rows := map[string]bool{} // a guard may have several places in a file
	for _, g := range guards {
		if g.tuning {
			continue
		}
		if d := path.Dir(g.file); d != dir {
			dir = d
			fmt.Fprintf(&b, "\n## %s\n\n| guard | in | rule | without it | test |\n|---|---|---|---|---|\n", dir)
		}
		rule, story, test := g.told()
		row := fmt.Sprintf("| `%s` | %s | %s | %s | %s |\n", g.name, path.Base(g.file), cell(rule), cell(story), cell(test))
		if !rows[dir+row] {
			b.WriteString(row)
			rows[dir+row] = true
		}
	}
	first := true
	for _, g := range guards {
		if !g.tuning {
			continue
		}
		if first {
			b.WriteString("\n## Tuning\n\nWithout one of these nothing is lost or wrong: it only takes longer, or costs more.\n\n| tuning | in | rule |\n|---|---|---|\n")
			first = false
		}
		row := fmt.Sprintf("| `%s` | %s | %s |\n", g.name, g.file, cell(g.why))
		if !rows[row] {
			b.WriteString(row)
			rows[row] = true
		}
	}
	return b.Bytes()
}

func cell(text string) string { return strings.NewReplacer("|", "\\|", "[", "", "]", "").Replace(text) }

// told returns a guard's rule, what happens without it, and the test that tells that. The comment of a guard that
// no test tells of yet has both.
func (g *guard) told() (rule, story, test string) {
	if len(g.stories) > 0 {
		s := g.stories[0]
		test, dir, _ := strings.Cut(s.where(), " in ")
		if test = "`" + test + "`"; dir != path.Dir(g.file) {
			test += " in " + dir
		}
		return g.why, s.text, test
	}
	if at := counterexample.FindStringIndex(g.why); at != nil {
		return strings.TrimSpace(g.why[:at[0]]), g.why[at[0]:], ""
	}
	return g.why, "", ""
}
