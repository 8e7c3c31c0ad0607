package main

import (
	"strings"
	"testing"
)

const head = "package p\n\nfunc f(a, b bool) int {\n"

func TestMutants(t *testing.T) {
	for name, row := range map[string]struct{ src, want, what string }{
		"before an if": {
			"\t// guard:x. Why.\n\t// More.\n\tif a {\n\t\treturn 1\n\t}\n\treturn 2\n}\n",
			"if (false && (a)) {", "a => false",
		},
		"first in the body of an if": {
			"\tif a {\n\t\t// guard:x.\n\t\treturn 1\n\t}\n\treturn 2\n}\n",
			"if (false && (a)) {", "a => false",
		},
		"first in a case": {
			"\tswitch {\n\tcase a:\n\t\treturn 0\n\tcase b:\n\t\t// guard:x.\n\t\treturn 1\n\t}\n\treturn 2\n}\n",
			"case (false && (b)):", "b => false",
		},
		"an if within a case": {
			"\tswitch {\n\tcase a:\n\t\tprintln()\n\t\t// guard:x.\n\t\tif b {\n\t\t\treturn 1\n\t\t}\n\t}\n\treturn 2\n}\n",
			"if (false && (b)) {", "b => false",
		},
		"an operand": {
			"\tif a &&\n\t\t// guard:x.\n\t\tb {\n\t\treturn 1\n\t}\n\treturn 2\n}\n",
			"(true || (b)) {", "b => true",
		},
		"its own words": {
			"\t// guard:x. Why.\n\t//mutant:replace a, b = => b, a =\n\t//mutant:replace println() =>\n\ta, b = b, a\n\tprintln()\n\treturn 2\n}\n",
			"\tb, a = b, a\n\t\n", "a, b = => b, a =; println() => ",
		},
		"own words that fit nothing": {
			"\t// guard:x.\n\t//mutant:replace c => d\n\treturn 2\n}\n\nfunc g() { c() }\n", "", "",
		},
		"before something else": {
			"\t// guard:x.\n\treturn 2\n}\n", "", "",
		},
		"before something else, an if later": {
			"\t// guard:x.\n\tprintln()\n\tif a {\n\t\treturn 1\n\t}\n\treturn 2\n}\n", "", "",
		},
	} {
		found, err := inFile("p.go", []byte(head+row.src))
		if err != nil || len(found) != 1 || found[0].name != "x" {
			t.Fatalf("%s: %+v, %v", name, found, err)
		}
		g := found[0]
		if row.want == "" {
			if g.err == nil {
				t.Errorf("%s: %s", name, g.mutant)
			}
			continue
		}
		if g.err != nil || !strings.Contains(string(g.mutant), row.want) || g.what != row.what {
			t.Errorf("%s: %v, %q:\n%s", name, g.err, g.what, g.mutant)
		}
	}
}

// TestEveryGuardHasAMutant: the tree's own.
func TestEveryGuardHasAMutant(t *testing.T) {
	guards, err := find("../../..")
	if err != nil || len(guards) < 40 {
		t.Fatalf("%d guards, %v", len(guards), err)
	}
	for _, g := range guards {
		if g.err != nil {
			t.Errorf("%s:%d: %s: %v", g.file, g.line, g.name, g.err)
		}
	}
}
