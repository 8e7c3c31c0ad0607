package main

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestUsage: without a bucket, or with two, it says how it is called.
func TestUsage(t *testing.T) {
	if os.Getenv("LOCK_TEST_AS_COMMAND") != "" {
		os.Args = append(os.Args[:1], strings.Fields(os.Getenv("LOCK_TEST_ARGS"))...)
		main()
		os.Exit(0)
	}
	for _, args := range []string{"", "gs://a/b gs://c/d"} {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUsage$")
		c.Env = append(os.Environ(), "LOCK_TEST_AS_COMMAND=1", "LOCK_TEST_ARGS="+args)
		out, err := c.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || string(out) != "usage: lock gs://bucket/prefix\n" {
			t.Errorf("%q: %v: %s", args, err, out)
		}
	}
}
