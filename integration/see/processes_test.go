//go:build integration

package see

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// program is the command line, built once.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "fencepost-browser")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "fencepost")
	build := exec.Command("go", "build", "-o", bin, ".")
	build.Dir = "../../cmd/fencepost"
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
})

// process is a verb that runs.
type process struct {
	*exec.Cmd
	lines chan string
}

// start starts a verb. What it prints to standard error goes to the test's log.
func start(t *testing.T, in io.Reader, args ...string) *process {
	t.Helper()
	return startWith(t, func(c *exec.Cmd) { c.Stdin = in }, args...)
}

// startWith is start with another set-up of the command.
func startWith(t *testing.T, setUp func(*exec.Cmd), args ...string) *process {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(bin, args...), lines: make(chan string, 1000)}
	setUp(p.Cmd)
	out, err := p.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case p.lines <- s.Text():
			default:
			}
		}
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-read
		_ = p.Wait()
	})
	return p
}

// says waits for a line and returns its groups.
func (p *process) says(t *testing.T, pattern string) []string {
	t.Helper()
	re, late := regexp.MustCompile(pattern), time.After(time.Minute)
	var all []string
	for {
		select {
		case l, ok := <-p.lines:
			if m := re.FindStringSubmatch(l); m != nil {
				return m
			}
			if all = append(all, l); !ok {
				t.Fatalf("%v ended without %q:\n%s", p.Args[1:], pattern, strings.Join(all, "\n"))
			}
		case <-late:
			t.Fatalf("%v did not say %q:\n%s", p.Args[1:], pattern, strings.Join(all, "\n"))
		}
	}
}

// endless is an input of records that never ends.
func endless(ctx context.Context, name string) io.Reader {
	r, w := io.Pipe()
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			if _, err := fmt.Fprintf(w, "%s %d\n", name, n); err != nil {
				return
			}
			<-tick.C
		}
		_ = w.Close()
	}()
	return r
}

// axe is the script of axe-core, from npm at a pinned version.
func axe(t *testing.T) string {
	t.Helper()
	const version = "4.14.1"
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "fencepost-axe-"+version)
	script := filepath.Join(dir, "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(script); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		npm := exec.CommandContext(t.Context(), "npm", "install", "--no-save", "--ignore-scripts", "--prefix", dir, "axe-core@"+version)
		if out, err := npm.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	b, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
