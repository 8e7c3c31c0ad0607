package pages

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Place is where the commands of a page run.
type Place struct {
	Dir     string            // an empty directory; it stands for /tmp and /var/lib too
	Root    string            // of the tree
	Env     []string          // in addition to the environment of this process
	Replace map[string]string // what a page writes, by what the test has
}

// step is what one command, or one block of sh, does.
type step struct {
	Block
	text string
	want []string // nil: anything
}

// Run runs the commands of one page. The error names the first block that fails, and says
// what it printed. Everything that the page has started is killed at the end.
func (p Place) Run(ctx context.Context, all []Block) error {
	var steps []step
	for _, b := range all {
		switch {
		case !b.Runs():
		case b.Lang == "console":
			for _, c := range b.commands() {
				steps = append(steps, step{b, c.text, append([]string{}, c.want...)})
			}
		default:
			steps = append(steps, step{Block: b, text: b.Text()})
		}
	}
	if len(steps) == 0 {
		return nil
	}
	work, state := filepath.Join(p.Dir, "page"), filepath.Join(p.Dir, "state")
	if err := errors.Join(os.Mkdir(work, 0o700), os.Mkdir(state, 0o700)); err != nil {
		return err
	}
	script, err := p.script(steps, state)
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, "bash", "-c", script)
	c.Dir = work
	c.Env = append(append(os.Environ(), p.Env...), "TMPDIR="+p.Dir)
	// A file, because to wait for a pipe is to wait for all that the page has started.
	printed, err := os.Create(filepath.Join(state, "printed"))
	if err != nil {
		return err
	}
	defer printed.Close()
	c.Stdout, c.Stderr = printed, printed
	failed := alone(c)
	out, err := os.ReadFile(printed.Name())
	if err != nil {
		return err
	}
	at, err := os.ReadFile(filepath.Join(state, "at"))
	if err != nil {
		return fmt.Errorf("no command began: %w\n%s", failed, out)
	}
	for i, s := range steps {
		b, err := os.ReadFile(output(state, i))
		if err != nil {
			break // it did not begin
		}
		got := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
		if len(b) == 0 {
			got = nil
		}
		if last := fmt.Sprint(i) == strings.TrimSpace(string(at)); failed != nil && last {
			return fmt.Errorf("%s: %w: %s\n%s%s", s, failed, strings.TrimSpace(s.text), b, out)
		}
		if s.want != nil && !like(got, p.lines(s.want)) {
			return fmt.Errorf("%s: %s prints\n%s\nthe page says\n%s", s, s.text, b, strings.Join(s.want, "\n"))
		}
	}
	return failed
}

func output(state string, i int) string { return filepath.Join(state, fmt.Sprintf("%d.out", i)) }

// here puts what the test has in place of what the page writes. It does so in one pass: what it has
// put in may be a path below /tmp itself.
func (p Place) here(text string) string {
	pairs := []string{"/tmp/", p.Dir + "/", "/var/lib/", p.Dir + "/"}
	for from, to := range p.Replace {
		pairs = append(pairs, from, to)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (p Place) lines(want []string) (all []string) {
	for _, l := range want {
		all = append(all, p.here(l))
	}
	for len(all) > 0 && strings.TrimSpace(all[len(all)-1]) == "" {
		all = all[:len(all)-1]
	}
	return all
}

// script writes each step to a file, and returns a script that runs them in one shell.
func (p Place) script(steps []step, state string) (string, error) {
	var b strings.Builder
	// await ends when the output of a step has a text, and fails when the step has ended
	// without it.
	b.WriteString(`set -eu -o pipefail
await() {
	until grep -qF -- "$3" "$1"; do
		kill -0 "$2" 2>/dev/null || { grep -qF -- "$3" "$1" && return; echo "it ended before it printed $3"; return 1; }
		sleep 0.05
	done
}
`)
	for i, s := range steps {
		file, out := filepath.Join(state, fmt.Sprintf("%d.sh", i)), output(state, i)
		if err := os.WriteFile(file, []byte(p.here(s.text)), 0o600); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "echo %d >%q\n", i, filepath.Join(state, "at"))
		run := fmt.Sprintf(". %q", file)
		if s.Root {
			run = fmt.Sprintf("( cd %q; %s )", p.Root, run)
		}
		switch {
		case s.Until != "":
			fmt.Fprintf(&b, ": >%q\n( %s ) >%[1]q 2>&1 &\nawait %[1]q $! %[3]q\n", out, run, p.here(s.Until))
		case s.Status != 0:
			fmt.Fprintf(&b, "status=0; ( set -e; %s ) >%q 2>&1 || status=$?\n[ $status = %d ] || { echo \"exit status $status\"; false; }\n", run, out, s.Status)
		default:
			fmt.Fprintf(&b, "%s >%q 2>&1\n", run, out)
		}
	}
	return b.String(), nil
}
