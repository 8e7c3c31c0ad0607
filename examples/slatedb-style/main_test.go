//go:build unix

package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// The tests start this test binary again, as the program.
const program = "FENCEPOST_EXAMPLE"

func TestMain(m *testing.M) {
	if os.Getenv(program) != "" {
		main()
		return
	}
	m.Run()
}

func command(args ...string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), program+"=1")
	return cmd
}

func TestStory(t *testing.T) {
	var out, errs bytes.Buffer
	cmd := command()
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errs)
	}
	for _, want := range []string{
		`leads in epoch 1`,
		`is frozen`,
		`leads in epoch 2`,
		`and prunes .*\d+ × data.*\d+ × lock.*\d+ × manifest`,
		`is refused: data/0{19}1/\d{20} → 412 Precondition Failed, it holds the seal of epoch 2`,
		`each of the \d+ acknowledged, once, in order`,
	} {
		if !regexp.MustCompile(want).Match(out.Bytes()) {
			t.Errorf("the story does not say %q:\n%s", want, &out)
		}
	}
	if errs.Len() > 0 {
		t.Errorf("stderr: %s", &errs)
	}
}

func TestStoresThatCannotServe(t *testing.T) {
	for url, want := range map[string]string{
		"mem://x":     "lives in the memory of one process",
		"nosuch://x":  "no driver for nosuch://",
		"not-a-store": "has no scheme",
	} {
		out, err := command("-store", url).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("-store %s: %v, %s; want %q", url, err, out, want)
		}
	}
}
