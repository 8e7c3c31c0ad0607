package main

import (
	"bytes"
	"fmt"
	"path"
	"strings"
)

// page is the file that holds [table], below the root.
const page = "docs/guards.md"

// table is a page of all guards by package, with their comments.
func table(guards []guard) []byte {
	var b bytes.Buffer
	b.WriteString(`# Guards

Every place in the code that keeps one of the promises has a name and says why it is there. This is the list of them, in the words of the code,
made by ` + "`make guards`" + `. [The protocol](protocol.md) tells how the more important ones belong together. ` + "`make mutants`" + ` takes each one out in turn, and
requires that a test fails.
`)
	dir := ""
	rows := map[string]bool{} // a guard may have several places in a file
	for _, g := range guards {
		if d := path.Dir(g.file); d != dir {
			dir = d
			fmt.Fprintf(&b, "\n## %s\n\n| guard | in | why |\n|---|---|---|\n", dir)
		}
		why := strings.NewReplacer("|", "\\|", "[", "", "]", "").Replace(g.why)
		row := fmt.Sprintf("| `%s` | %s | %s |\n", g.name, path.Base(g.file), why)
		if !rows[dir+row] {
			b.WriteString(row)
			rows[dir+row] = true
		}
	}
	return b.Bytes()
}
