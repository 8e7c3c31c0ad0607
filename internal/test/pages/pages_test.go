package pages

import (
	"path/filepath"
	"strings"
	"testing"
)

const f = "```"

// run runs a page in a place of its own.
func run(t *testing.T, page string) error {
	t.Helper()
	all, faults := Parse("page.md", page)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	return Place{Dir: t.TempDir(), Root: root, Replace: map[string]string{"/path/to/one": "1"}}.Run(t.Context(), all)
}

func TestPagesThatAreRight(t *testing.T) {
	for name, page := range map[string]string{
		"nothing to run":            "# A page\n" + f + "go\nno code\n" + f + "\n",
		"a shell that goes on":      f + "sh\nmkdir d && cd d\nx=1\n" + f + "\n" + f + "console\n$ pwd\n…/page/d\n$ echo $x\n1\n" + f + "\n",
		"what a page has before":    "<!-- test: before\nthere() { echo yes; }\n-->\n" + f + "sh\nthere | grep yes\n" + f + "\n",
		"any text, any lines":       f + "console\n$ seq 5\n1\n…\n5\n$ echo a quick   fox\na … f…\n$ printf ''\n" + f + "\n",
		"what varies":               f + "console\n$ echo at 2026-11-23 21:24:36Z for 7.79s by vm/32298/d20837ef-5459-4563-b62f-b9904ff4a35d\nat 2020-01-02 03:04:05Z  for 1m2s by b.example/1/00000000-0000-0000-0000-000000000000\n" + f + "\n",
		"nothing after the command": f + "console\n$ true\n" + f + "\n",
		"a command of two lines":    f + "console\n$ echo a \\\n    b\na b\n" + f + "\n",
		"one that goes on":          "<!-- test: until ready -->\n" + f + "sh\necho ready; sleep 1000\n" + f + "\n" + f + "sh\ntrue\n" + f + "\n",
		"an exit status":            "<!-- test: status 3 -->\n" + f + "sh\nfalse || exit 3\n" + f + "\n",
		"skipped":                   "<!-- test: skip remote -->\n" + f + "sh\nfalse\n" + f + "\n",
		"its own /tmp":              f + "sh\necho 1 >/tmp/pages-test-file\n" + f + "\n" + f + "console\n$ cat /tmp/pages-test-file /var/lib/pages-test-file\n1\n1\n" + f + "\n",
		"the root":                  "<!-- test: root -->\n" + f + "sh\ncat go.mod\n" + f + "\n",
		"what is replaced":          f + "console\n$ echo /path/to/one\n1\n" + f + "\n",
		"in a list":                 "1. First:\n\n   " + f + "sh\n   if true; then\n     echo a\n   fi\n   " + f + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t, page); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPagesThatAreBroken: whatever is wrong is found, and named by its line.
func TestPagesThatAreBroken(t *testing.T) {
	for name, c := range map[string]struct{ page, says string }{
		"a command that fails":          {f + "sh\ntrue\n" + f + "\n\n" + f + "sh\nfalse\ntrue\n" + f + "\n", "page.md:6: exit status 1: false"},
		"one that does not exist":       {f + "sh\nno-such-command here\n" + f + "\n", "no-such-command: command not found"},
		"a pipe of which a part fails":  {f + "sh\nfalse | cat\n" + f + "\n", "page.md:2: exit status 1"},
		"a variable that is not there":  {f + "sh\necho $nothing_is_called_so\n" + f + "\n", "unbound"},
		"another output":                {f + "console\n$ echo a\nb\n" + f + "\n", "page.md:2: echo a prints\na\n"},
		"output that is missing":        {f + "console\n$ true\nb\n" + f + "\n", "page.md:2: true prints"},
		"output that is not shown":      {f + "console\n$ seq 2\n1\n" + f + "\n", "page.md:2: seq 2 prints"},
		"a line that only begins so":    {f + "console\n$ echo ab\na\n" + f + "\n", "echo ab prints"},
		"a pattern that ends otherwise": {f + "console\n$ echo a fox and an ox\na … cat\n" + f + "\n", "prints"},
		"a console that fails":          {f + "console\n$ echo a; false\na\n" + f + "\n", "exit status 1"},
		"a number that does not vary":   {f + "console\n$ echo 12 s\n13 s\n" + f + "\n", "echo 12 s prints"},
		"status 0 and not 3":            {"<!-- test: status 3 -->\n" + f + "sh\ntrue\n" + f + "\n", "exit status 0"},
		"text that never comes":         {"<!-- test: until ready -->\n" + f + "sh\necho read\n" + f + "\n", "it ended before it printed ready"},
		"a command that is not shown":   {"<!-- test: before\nfalse\n-->\n" + f + "sh\ntrue\n" + f + "\n", "page.md:2: exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(t, c.page); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error that says %q", err, c.says)
			}
		})
	}
}

// TestMarksThatAreWrong: a mark that does nothing would hide that a block is not run.
func TestMarksThatAreWrong(t *testing.T) {
	for name, page := range map[string]string{
		"an unknown reason":          "<!-- test: skip laziness -->\n" + f + "sh\ntrue\n" + f + "\n",
		"no reason":                  "<!-- test: skip -->\n" + f + "sh\ntrue\n" + f + "\n",
		"an unknown mark":            "<!-- test: perhaps -->\n" + f + "sh\ntrue\n" + f + "\n",
		"before text":                "<!-- test: root -->\ntext\n" + f + "sh\ntrue\n" + f + "\n",
		"before what is never run":   "<!-- test: root -->\n" + f + "json\n{}\n" + f + "\n",
		"no text to wait for":        "<!-- test: until -->\n" + f + "sh\ntrue\n" + f + "\n",
		"a status that is no number": "<!-- test: status one -->\n" + f + "sh\ntrue\n" + f + "\n",
		"at the end":                 "<!-- test: root -->\n",
		"no language":                "<!-- test: skip remote -->\n" + f + "\nfalse\n" + f + "\n",
		"no language, no mark":       f + "\nfalse\n" + f + "\n",
		"a block without an end":     f + "sh\ntrue\n",
		"a mark of two lines":        "<!-- test: root\n-->\n" + f + "sh\ntrue\n" + f + "\n",
	} {
		if _, faults := Parse("page.md", page); len(faults) == 0 {
			t.Errorf("%s passes", name)
		}
	}
}

// A clone may lie below /tmp. Its path is not one that the page has written.
func TestPlaceOfAClone(t *testing.T) {
	p := Place{Dir: "/elsewhere/page", Replace: map[string]string{"/path/to/the/clone": "/tmp/clone"}}
	if got := p.here("cp /path/to/the/clone/a /tmp/b /var/lib/c"); got != "cp /tmp/clone/a /elsewhere/page/b /elsewhere/page/c" {
		t.Error(got)
	}
}
