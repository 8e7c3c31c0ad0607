package house_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/pages"
)

// This file has the rules for documents. Their Go code is compiled somewhere, their
// links, and the commands that nothing runs here, lead to something that exists, and .ci/run first runs the commands
// that the README gives a newcomer first.

// bare returns text without indentation and empty lines. A document shows the inside of a
// function without its indentation, so the two are compared bare.
func bare(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// checkGo wants a block of Go to stand verbatim in one of the sources.
func checkGo(b pages.Block, sources map[string]string) error {
	want := bare(strings.Join(b.Lines, "\n"))
	for _, src := range sources {
		if strings.Contains("\n"+bare(src), "\n"+want) {
			return nil
		}
	}
	return fmt.Errorf("%s: this Go code is in no compiled file: show what an example_test.go holds", b)
}

// whole reports whether a block is a file by itself.
func whole(b pages.Block) bool { return strings.HasPrefix(b.Text(), "package ") }

// runGo compiles and runs a block that is a whole file: a program, or tests. It is not
// written to the tree: go sees it through an overlay.
func runGo(t *testing.T, b pages.Block) error {
	t.Helper()
	name, verb := "main.go", []string{"run"}
	if strings.Contains(b.Text(), "\"testing\"") {
		name, verb = "page_test.go", []string{"test", "-count=1", "-vet=off"}
	}
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, name), filepath.Join(dir, "overlay.json")
	place, err := filepath.Abs(filepath.Join("examples", name))
	if err != nil {
		return err
	}
	doc := fmt.Sprintf(`{"Replace": {%q: %q}}`, place, file)
	if err := errors.Join(os.WriteFile(file, []byte(b.Text()), 0o600), os.WriteFile(overlay, []byte(doc), 0o600)); err != nil {
		return err
	}
	args := slices.Concat(verb, []string{"-overlay", overlay, "./examples"})
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", b, err, out)
	}
	return nil
}

// commands returns the commands of a block of shell without prompts and comments. Commands
// joined by "&&" are several.
func commands(b pages.Block) (all []string) {
	text := strings.ReplaceAll(strings.Join(b.Lines, "\n"), "\\\n", " ")
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(" "+line, " #")
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		for part := range strings.SplitSeq(line, "&&") {
			if part = strings.Join(strings.Fields(part), " "); part != "" {
				all = append(all, part)
			}
		}
	}
	return all
}

// checkSh wants the targets of make, the folders of cd and the packages of go to exist below
// root.
func checkSh(b pages.Block, root string, targets []string) (faults []error) {
	dir := root
	for _, command := range commands(b) {
		words := strings.Fields(command)
		switch words[0] {
		case "cd":
			dir = filepath.Join(dir, words[len(words)-1])
			if _, err := os.Stat(dir); err != nil {
				faults = append(faults, fmt.Errorf("%s: %q: %w", b, command, err))
			}
		case "make":
			for _, target := range words[1:] {
				if !strings.Contains(target, "=") && !slices.Contains(targets, target) {
					faults = append(faults, fmt.Errorf("%s: %q: the Makefile has no target %s", b, command, target))
				}
			}
		case "go":
			for _, arg := range words[1:] {
				if !strings.HasPrefix(arg, ".") {
					continue
				}
				if _, err := os.Stat(filepath.Join(dir, strings.TrimSuffix(arg, "..."))); err != nil {
					faults = append(faults, fmt.Errorf("%s: %q: %w", b, command, err))
				}
			}
		}
	}
	return faults
}

var (
	linkRE   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	targetRE = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)
	stepRE   = regexp.MustCompile(`(?m)^\t"([^"]+)"`)
)

// checkLinks wants the files that a document links to to exist. It skips the web.
func checkLinks(file, text string) (faults []error) {
	for _, m := range linkRE.FindAllStringSubmatch(text, -1) {
		to, _, _ := strings.Cut(m[1], "#")
		if to == "" || strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(file), to)); err != nil {
			faults = append(faults, fmt.Errorf("%s links to %s: %w", file, m[1], err))
		}
	}
	return faults
}

// checkNewcomer wants .ci/run to begin with the commands of the README's first block of
// shell, in their order.
func checkNewcomer(readme []pages.Block, run string) error {
	i := slices.IndexFunc(readme, func(b pages.Block) bool { return b.Lang == "sh" })
	if i < 0 {
		return errors.New("README.md has no block of sh that says how to begin")
	}
	_, run, _ = strings.Cut(run, "\n.ci/steps")
	var steps []string
	for _, m := range stepRE.FindAllStringSubmatch(run, -1) {
		steps = append(steps, m[1])
	}
	// .ci/run runs inside a clone, so it does not clone.
	told := slices.DeleteFunc(commands(readme[i]), func(c string) bool {
		return strings.HasPrefix(c, "git clone") || strings.HasPrefix(c, "cd ")
	})
	if len(told) == 0 || len(steps) <= len(told) || !slices.Equal(steps[:len(told)], told) {
		return fmt.Errorf("%s tells a newcomer to run %q, .ci/run begins with %q", readme[i], told, steps)
	}
	return nil
}

// documents are the files whose blocks and links are checked.
func documents(t *testing.T) []string {
	t.Helper()
	files := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"}
	err := filepath.WalkDir("docs", func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && p == "docs" {
			return nil
		}
		if err == nil && filepath.Ext(p) == ".md" {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func slurp(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// emptyHeaderRE finds the header of a table of which a column has no name.
var emptyHeaderRE = regexp.MustCompile(`(?m)^(?:\|.*)?\|[ \t]*\|.*\n\|[ :|-]*-[ :|-]*$`)

func TestHouseOfDocuments(t *testing.T) {
	t.Chdir("../..")
	// The README's code is an example that a reader can run; other documents may
	// show any code of the project.
	examples, sources := map[string]string{}, map[string]string{}
	for _, f := range tree(t) {
		text := slurp(t, f.path)
		sources[f.path] = text
		if f.base() == "example_test.go" || strings.HasPrefix(f.path, "examples/") {
			examples[f.path] = text
		}
	}
	var targets []string
	for _, m := range targetRE.FindAllStringSubmatch(slurp(t, "Makefile"), -1) {
		targets = append(targets, m[1])
	}
	for _, file := range documents(t) {
		t.Run(filepath.ToSlash(file), func(t *testing.T) {
			text := slurp(t, file)
			for _, err := range checkLinks(file, text) {
				t.Error(err)
			}
			if h := emptyHeaderRE.FindString(text); h != "" {
				t.Errorf("a screen reader needs a name for each column of the table %q", h)
			}
			all, faults := pages.Parse(file, text)
			for _, err := range faults {
				t.Error(err)
			}
			for _, b := range all {
				in := sources
				if file == "README.md" {
					in = examples
				}
				switch b.Lang {
				case "go":
					if whole(b) {
						if err := runGo(t, b); err != nil {
							t.Error(err)
						}
					} else if err := checkGo(b, in); err != nil {
						t.Error(err)
					}
				case "sh":
					if b.Runs() && (file == "README.md" || strings.HasPrefix(file, "docs")) {
						continue // TestDocuments in cmd/fencepost runs it
					}
					for _, err := range checkSh(b, ".", targets) {
						t.Error(err)
					}
				}
			}
		})
	}
	t.Run("newcomer", func(t *testing.T) {
		all, _ := pages.Parse("README.md", slurp(t, "README.md"))
		if err := checkNewcomer(all, slurp(t, ".ci/run")); err != nil {
			t.Error(err)
		}
	})
}

func TestHouseDocumentRulesBite(t *testing.T) {
	t.Chdir("../..")
	const readme = "# X\n\n```sh\ngit clone x && cd x\n$ go run ./examples/y   # a story\ngo test ./...\n```\n" +
		"\n```go\nif err != nil {\n\treturn err\n}\n```\n```sh\nmake nothing FOO=1\ncd store/nowhere\n```\n[a](nowhere.md#x) [b](go.mod) [c](https://x)\n"
	all, _ := pages.Parse("README.md", readme)
	if len(all) != 3 || all[1].Lang != "go" || all[1].Line != 10 {
		t.Fatalf("blocks: %v", all)
	}
	run := "\t\"echo first\"\n.ci/steps \\\n\t\"go run ./examples/y\" \\\n\t\"go test ./...\" \\\n\t\"make ci\"\n"
	if err := checkNewcomer(all, run); err != nil {
		t.Error(err)
	}
	if err := checkNewcomer(all, strings.Replace(run, "examples/y", "examples/z", 1)); err == nil {
		t.Error("another first command in .ci/run passes")
	}
	if err := checkNewcomer(all[1:2], run); err == nil {
		t.Error("a README without commands passes")
	}
	compiled := "func f() error {\n\t\tif err != nil {\n\n\t\t\treturn err\n\t\t}\n\treturn nil\n}\n"
	if err := checkGo(all[1], map[string]string{"a": compiled}); err != nil {
		t.Error(err)
	}
	for _, other := range []string{
		strings.Replace(compiled, "return err", "return nil", 1),
		strings.Replace(compiled, "if err", "else if err", 1),
	} {
		if err := checkGo(all[1], map[string]string{"a": other}); err == nil {
			t.Errorf("other code passes: %s", other)
		}
	}
	for _, text := range []string{
		"package main\n\nfunc main() { nothing() }",
		"package main\n\nfunc main() { panic(1) }",
		"package a_test\n\nimport \"testing\"\n\nfunc TestA(t *testing.T) { t.Error(1) }",
	} {
		if b := (pages.Block{Lang: "go", Lines: strings.Split(text, "\n")}); !whole(b) || runGo(t, b) == nil {
			t.Errorf("broken code passes: %s", text)
		}
	}
	if err := runGo(t, pages.Block{Lang: "go", Lines: []string{"package main", "func main() {}"}}); err != nil {
		t.Error(err)
	}
	if faults := checkSh(all[2], ".", []string{"help"}); len(faults) != 2 {
		t.Errorf("a missing target and a missing folder: %v", faults)
	}
	gone := pages.Block{Lang: "sh", Lines: []string{"go run ./nowhere"}}
	if faults := checkSh(gone, ".", nil); len(faults) != 1 {
		t.Errorf("a missing package: %v", faults)
	}
	if faults := checkLinks("README.md", readme); len(faults) != 1 || !strings.Contains(faults[0].Error(), "nowhere.md#x") {
		t.Errorf("a missing file: %v", faults)
	}
}

// maxWords is how long a sentence of the documents may be. CONTRIBUTING asks for 25; a few more do no harm
// where a list of names stands in it.
const maxWords = 28

var (
	fenced    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	comment   = regexp.MustCompile("(?s)<!--.*?-->")
	mdCode    = regexp.MustCompile("`[^`\n]*`")
	mdLink    = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	itemStart = regexp.MustCompile(`(?m)^\s*(?:[-*] |\d+\. |#+ |> )`)
	sentence  = regexp.MustCompile(`[.:;?!](?:["')*]*)(?:\s|$)|\n\s*\n|\|`)
)

// checkWords wants short sentences. Generated pages and code do not count. What stands in backquotes is one word.
func checkWords(file, doc string) (faults []string) {
	doc = comment.ReplaceAllString(fenced.ReplaceAllString(doc, "\n\n"), "")
	doc = mdCode.ReplaceAllString(doc, "code")
	doc = mdLink.ReplaceAllString(doc, "$1")
	doc = itemStart.ReplaceAllString(doc, "\n\n")
	for _, s := range sentence.Split(doc, -1) {
		words := 0
		for _, w := range strings.Fields(s) {
			if strings.ContainsFunc(w, func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' }) {
				words++
			}
		}
		if words > maxWords {
			faults = append(faults, fmt.Sprintf("%s: a sentence of %d words: %s", file, words, strings.Join(strings.Fields(s), " ")))
		}
	}
	return faults
}

// lists are pages that are written from the code.
var lists = []string{"docs/json.md"}

func TestHouseOfWords(t *testing.T) {
	t.Chdir("../..")
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) < 10 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range append(files, "README.md") {
		if file = filepath.ToSlash(file); !matchesAny(lists, file) {
			report(t, checkWords(file, slurp(t, file)))
		}
	}
}

func TestHouseWordsBite(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", maxWords+1))
	half := strings.TrimSpace(strings.Repeat("word ", maxWords))
	for doc, want := range map[string]int{
		long + ".":                          1,
		half + ". " + half + "; " + half:    0,
		half + "\n" + half + ".":            1,
		half + "\n\n" + half:                0,
		"- " + half + "\n- " + half:         0,
		"| " + half + " | " + long + " |":   1,
		"```sh\n" + long + "\n```\n" + half: 0,
		half[5:] + " `a b c` ":              0,
		half + " [a b](c)":                  1,
		"<!-- " + long + " -->":             0,
	} {
		if faults := checkWords("a.md", doc); len(faults) != want {
			t.Errorf("%q has faults %q, want %d", doc, faults, want)
		}
	}
}
