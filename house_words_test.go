package fencepost_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
	doc = mapRE.ReplaceAllString(doc, "") // lists of files
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
