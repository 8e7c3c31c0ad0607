package pages

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Reasons say why nothing runs a block.
var Reasons = map[string]string{
	"ci":        "a step of make ci or .ci/run runs it, or it is one of its own; the target must exist",
	"container": "it needs podman and an image: make container runs it",
	"cluster":   "it needs a Kubernetes cluster",
	"engine":    "it needs DuckDB, Polars or delta-rs: make engines runs them",
	"install":   "it installs or downloads something",
	"recipe":    "it needs the program that it is for: make recipes runs it",
	"release":   "it publishes a release, or needs one",
	"remote":    "it needs another machine, or a database server",
	"service":   "it needs systemd, or the rights of root",
	"terminal":  "it needs a browser or a terminal: make see runs the former",
}

// Block is a fenced block of a document, or a comment with commands.
type Block struct {
	File   string
	Line   int // of its first line
	Lang   string
	Lines  []string
	Before bool // it is a comment and not shown

	Skip   string // why nothing runs it: one of Reasons
	Root   bool   // it runs in the root of the tree
	Until  string // it runs on, and the page waits for this text in its output
	Status int    // its exit status
}

func (b Block) String() string { return fmt.Sprintf("%s:%d", b.File, b.Line) }

// Text is the block without the indentation of its fence.
func (b Block) Text() string { return strings.Join(b.Lines, "\n") + "\n" }

// Runs reports whether [Run] runs the block.
func (b Block) Runs() bool {
	return b.Skip == "" && (b.Before || b.Lang == "sh" || b.Lang == "console")
}

// Parse returns the blocks of a document, and an error for each mark that is wrong.
func Parse(file, text string) (all []Block, faults []error) {
	var (
		open   *Block
		mark   string // waits for the block that follows
		indent string
	)
	for i, line := range strings.Split(text, "\n") {
		bare := strings.TrimSpace(line)
		lang, fence := strings.CutPrefix(bare, "```")
		here := Block{File: file, Line: i + 1}
		switch {
		case open != nil && open.Before && bare == "-->", open != nil && !open.Before && fence:
			all = append(all, *open)
			open = nil
		case open != nil:
			open.Lines = append(open.Lines, strings.TrimPrefix(line, indent))
		case fence:
			open = &Block{File: file, Line: i + 2, Lang: lang}
			indent, _, _ = strings.Cut(line, "`")
			if err := open.set(mark); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", here, err))
			}
			if lang == "" { // commands could hide in it
				faults = append(faults, fmt.Errorf("%s: the block has no language; what is only shown is text", here))
			}
			mark = ""
		case bare == "<!-- test: before":
			open = &Block{File: file, Line: i + 2, Lang: "sh", Before: true}
			indent = ""
		case strings.HasPrefix(bare, "<!-- test:"):
			var closed bool
			mark, closed = strings.CutSuffix(strings.TrimPrefix(bare, "<!-- test:"), "-->")
			if mark = strings.TrimSpace(mark); !closed || mark == "" {
				faults = append(faults, fmt.Errorf("%s: this mark is not one line that says something", here))
			}
		case bare != "" && mark != "":
			faults = append(faults, fmt.Errorf("%s: the mark %q stands before no block", here, mark))
			mark = ""
		}
	}
	if open != nil || mark != "" {
		faults = append(faults, fmt.Errorf("%s: the last block or mark has no end", file))
	}
	return all, faults
}

// set does what a mark says.
func (b *Block) set(mark string) (err error) {
	word, rest, _ := strings.Cut(mark, " ")
	switch word {
	case "":
	case "skip":
		if b.Skip = rest; Reasons[rest] == "" {
			err = fmt.Errorf("skip %q is no known reason", rest)
		}
	case "root":
		b.Root = true
	case "until":
		if b.Until = rest; rest == "" {
			err = errors.New("until says no text")
		}
	case "status":
		b.Status, err = strconv.Atoi(rest)
	default:
		err = fmt.Errorf("unknown mark %q", mark)
	}
	if err == nil && mark != "" && !slices.Contains([]string{"sh", "console", "go"}, b.Lang) {
		err = fmt.Errorf("the mark %q stands before a block of %s, which is never run", mark, cmp.Or(b.Lang, "nothing"))
	}
	return err
}

// command is one command of a block of console, and what it prints.
type command struct {
	text string
	want []string
}

// commands splits a block of console. A command that ends in "\" goes on in the next line.
func (b Block) commands() (all []command) {
	for i := 0; i < len(b.Lines); i++ {
		text, ok := strings.CutPrefix(b.Lines[i], "$ ")
		if !ok {
			if len(all) == 0 {
				all = append(all, command{})
			}
			last := &all[len(all)-1]
			last.want = append(last.want, b.Lines[i])
			continue
		}
		for strings.HasSuffix(text, `\`) && i+1 < len(b.Lines) {
			i++
			text += "\n" + b.Lines[i]
		}
		all = append(all, command{text: text})
	}
	return all
}

// like reports whether the lines got are those that are wanted: "…" stands for any text of a
// line, and a line "…" for any lines.
func like(got, want []string) bool {
	if len(want) == 0 {
		return len(got) == 0
	}
	if strings.TrimSpace(want[0]) == "…" {
		for i := range len(got) + 1 {
			if like(got[i:], want[1:]) {
				return true
			}
		}
		return false
	}
	return len(got) > 0 && likeLine(same(got[0]), same(want[0])) && like(got[1:], want[1:])
}

// varying is what two runs print differently: times, names of processes, lengths of time, and
// identities. A page shows one of each.
var varying = regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z|\S+/\d+/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b(\d+(\.\d+)?(h|ms|µs|m|s))+\b|\b[0-9a-f]{32}\b`)

func same(line string) []string { return strings.Fields(varying.ReplaceAllString(line, "*")) }

// likeLine compares two lines without regard for how wide their spaces are.
func likeLine(got, want []string) bool {
	text, pattern := strings.Join(got, " "), strings.Split(strings.Join(want, " "), "…")
	for i, p := range pattern {
		switch p = strings.TrimSpace(p); {
		case i == len(pattern)-1 && i > 0:
			return strings.HasSuffix(text, p)
		case i == 0 && !strings.HasPrefix(text, p):
			return false
		}
		_, after, ok := strings.Cut(text, strings.TrimSpace(p))
		if !ok {
			return false
		}
		text = after
	}
	return text == ""
}
