//go:build integration && unix

package integration

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test/servers"
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
		urls := strings.NewReplacer("URL", s.URL("verbs"), "BACKUP", s.URL("verbs-backup"), "RESTORED", s.URL("verbs-restored"),
			"APART", s.URL("apart"), "TABLE", s.URL("apart-table"), "COPIED", s.URL("apart-backup"), "AGAIN", s.URL("apart-again"), "LAKE", s.URL("apart-lake"))
		for _, step := range []struct{ args, in, out string }{
			{"probe URL", "", "exactly one wins"},
			{"init --grace 1s URL", "", ""},
			{"append --cursor --source lines URL", "one\ntwo\nthree\n", ""},
			{"append --cursor --source lines URL", "one\ntwo\nthree\nfour\n", ""},
			{"cat URL", "", "one\ntwo\nthree\nfour\n"},
			{"cat --json --from 1 --to 2 URL", "", `"offset":1`},
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
			{"status --objects URL", "", "objects"},
			{"lag --at 3 URL", "", "1 record behind"},
			{"history URL", "", "resigned"},
			{"doctor URL", "", "takeovers"},
			{"truncate --dry-run --before 2 URL", "", "would give up nothing"},
			{"backup URL BACKUP", "", "nothing is wrong"},
			{"restore BACKUP RESTORED", "", "nothing is wrong"},
			{"append RESTORED", "five\n", ""},
			{"cat --from 3 RESTORED", "", "four\nfive\n"},
			{"step-down URL", "", ""},
			{"init --grace 1s --files TABLE APART", "", ""},
			{"append --files TABLE APART", "one\n", ""},
			{"compact --files TABLE APART", "", ""},
			{"backup --files TABLE APART COPIED", "", "nothing is wrong"},
			{"restore --files LAKE COPIED AGAIN", "", "nothing is wrong"},
			{"append --files LAKE AGAIN", "two\n", ""},
			{"cat AGAIN", "", "one\ntwo\n"},
		} {
			cmd := exec.Command(bin, strings.Fields(urls.Replace(step.args))...)
			cmd.Stdin = strings.NewReader(step.in)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Run(); err != nil || !strings.Contains(out.String(), step.out) {
				t.Fatalf("%s: %v\n%s%s", step.args, err, out.String(), errs.String())
			}
		}
	})
}
