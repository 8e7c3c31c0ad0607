//go:build integration && unix

package integration

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/integration/servers"
)

// buildCommand builds the command into a folder.
func buildCommand(t *testing.T, dir string) (bin string) {
	t.Helper()
	bin = filepath.Join(dir, "fencepost")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = filepath.Join("..", "cmd", "fencepost")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// TestVerbsOnRealServers runs each command that accesses a store.
func TestVerbsOnRealServers(t *testing.T) {
	bin := buildCommand(t, t.TempDir())
	onEach(t, servers.Conforming, func(t *testing.T, s *servers.Server) {
		url := s.URL("verbs")
		for _, step := range []struct{ args, in, out string }{
			{"probe URL", "", "exactly one wins"},
			{"init --grace 1s URL", "", ""},
			{"append --cursor --source lines URL", "one\ntwo\nthree\n", ""},
			{"append --cursor --source lines URL", "one\ntwo\nthree\nfour\n", ""},
			{"cat URL", "", "one\ntwo\nthree\nfour\n"},
			{"export --from 1 --to 2 URL", "", `"offset":1`},
			{"status URL", "", "4"},
			{"compact URL", "", ""},
			{"cat --from 2 URL", "", "three\nfour\n"},
			{"files URL", "", ""},
			{"pin --name backup URL", "", ""},
			{"pins URL", "", "backup"},
			{"unpin backup URL", "", ""},
			{"truncate --before 2 URL", "", ""},
			{"cat --from 2 URL", "", "three\nfour\n"},
			{"verify URL", "", ""},
			{"step-down URL", "", ""},
		} {
			cmd := exec.Command(bin, strings.Fields(strings.ReplaceAll(step.args, "URL", url))...)
			cmd.Stdin = strings.NewReader(step.in)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil || !strings.Contains(out.String(), step.out) {
				t.Fatalf("%s: %v\n%s%s", step.args, err, out.String(), errs.String())
			}
		}
	})
}
