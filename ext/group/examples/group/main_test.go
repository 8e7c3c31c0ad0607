//go:build unix

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

func TestStory(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "group")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out, errs bytes.Buffer
	cmd := exec.Command(bin)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	for _, want := range []string{
		`five workers share them: ada 1[23], bob 1[23]`,
		`bob is killed`,
		`others have her partitions: ada 2[12], dan 2[12], eve 2[12]`,
		`fay and gus have joined`,
		`hands over in good order`,
		`no two workers held a partition at once, by their own belief, in \d{3} ownerships; tokens rise`,
		`each of 64 logs is one history: each of \d{3,} acknowledged records is there, once, in order`,
		`nobody held a partition for: median`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the story does not say %q:\n%s", want, &out)
		}
	}
}

// A checker that finds nothing wrong proves nothing unless it finds what is wrong.
func TestCheckerBites(t *testing.T) {
	events := func(edit func(e []event) []event) error {
		r := newReport()
		for _, e := range edit([]event{
			{Worker: "a", What: "holds", Until: 100},
			{Worker: "a", What: "opens", Token: 1, At: 10},
			{Worker: "b", What: "opens", Token: 2, At: 101},
		}) {
			r.add(e)
		}
		return r.ownerships(new([]int64))
	}
	if err := events(func(e []event) []event { return e }); err != nil {
		t.Error(err)
	}
	for name, edit := range map[string]func(e []event) []event{
		"an opening before the deadline": func(e []event) []event { e[2].At = 99; return e },
		"a token that does not rise":     func(e []event) []event { e[2].Token = 1; return e },
	} {
		if events(edit) == nil {
			t.Errorf("%s is not found", name)
		}
	}
}
