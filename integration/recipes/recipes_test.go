//go:build recipes

package recipes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/pages"
)

// bin has the command, and what a machine of a test has instead of its own programs.
var bin string

const asRSH = "FENCEPOST_RECIPES_RSH"

func TestMain(m *testing.M) {
	if os.Getenv(asRSH) != "" {
		if err := rsh(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "recipes-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user
			panic(err)
		}
		bin = dir
		build := exec.Command("go", "build", "-o", filepath.Join(bin, "fencepost"), ".")
		build.Dir = "../../cmd/fencepost"
		if out, err := build.CombinedOutput(); err != nil {
			panic(fmt.Sprintf("%v\n%s", err, out))
		}
		return m.Run()
	}())
}

// place is where the machines of a test are. The page's buckets are directories of it.
type place struct {
	t   *testing.T
	dir string
	uid uint32
	// replace has what the page says and what it is here.
	replace []string
}

func newPlace(t *testing.T, uid uint32, replace ...string) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "recipe-") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := errors.Join(os.Chown(dir, int(uid), int(uid)), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	return &place{t: t, dir: dir, uid: uid, replace: append(replace, "s3://", "file://"+dir+"/")}
}

// path is a file of the place.
func (p *place) path(name string) string { return filepath.Join(p.dir, name) }

// read returns a file's text, "" if there is none.
func (p *place) read(name string) string {
	b, _ := os.ReadFile(p.path(name))
	return string(b)
}

func (p *place) write(name, text string) {
	p.t.Helper()
	at := p.path(name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(at, []byte(text), 0o755), os.Chown(filepath.Dir(at), int(p.uid), int(p.uid)), os.Chown(at, int(p.uid), int(p.uid))); err != nil {
		p.t.Fatal(err)
	}
}

// script writes the n-th script of a section of the page into a machine's folder. It returns how the page says that it is
// started, by a line with "as: ".
func (p *place) script(section string, n int, at string) (command string) {
	p.t.Helper()
	text, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		p.t.Fatal(err)
	}
	_, after, found := strings.Cut(string(text), "\n## "+section+"\n")
	if !found {
		p.t.Fatalf("docs/recipes.md has no section %q", section)
	}
	after, _, _ = strings.Cut(after, "\n## ")
	blocks, faults := pages.Parse("recipes.md", after)
	if len(faults) > 0 || len(blocks) <= n {
		p.t.Fatalf("%v: %d scripts", faults, len(blocks))
	}
	code := strings.NewReplacer(p.replace...).Replace(blocks[n].Text())
	for _, line := range strings.Split(code, "\n") {
		if _, c, ok := strings.Cut(line, " as: "); ok && strings.HasPrefix(line, "#") {
			command = c
		}
	}
	p.write(at, code)
	return command
}

// process is a command that runs.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	out *output
	end chan struct{}
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs a line of the shell in a folder of the place.
func (p *place) start(machine, line string, env ...string) *process {
	p.t.Helper()
	if err := errors.Join(os.MkdirAll(p.path(machine), 0o755), os.Chown(p.path(machine), int(p.uid), int(p.uid))); err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "exec "+line)
	cmd.Dir = p.path(machine)
	cmd.Env = append(os.Environ(), "PATH="+p.path(machine)+":"+bin+":"+os.Getenv("PATH"), "HOME="+p.dir)
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: &syscall.Credential{Uid: p.uid, Gid: p.uid, NoSetGroups: os.Getuid() != 0}}
	if os.Getuid() == int(p.uid) {
		cmd.SysProcAttr.Credential = nil
	}
	r := &process{t: p.t, cmd: cmd, out: new(output), end: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = r.out, r.out
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go func() {
		defer close(r.end)
		cmd.Wait() //nolint:errcheck // status tells
	}()
	p.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGCONT) //nolint:errcheck // it may have ended
		cmd.Process.Signal(syscall.SIGTERM) //nolint:errcheck
		select {
		case <-r.end:
		case <-time.After(time.Minute):
			cmd.Process.Kill() //nolint:errcheck
			<-r.end
		}
		if p.t.Failed() {
			p.t.Logf("%s: %s\n%s", machine, line, r.out)
		}
	})
	return r
}

// status waits for the end.
func (r *process) status() int {
	r.t.Helper()
	select {
	case <-r.end:
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("%v does not end\n%s", r.cmd.Args, r.out)
	}
	return r.cmd.ProcessState.ExitCode()
}

// ends fails the test if the status is another one.
func (r *process) ends(status int) {
	r.t.Helper()
	if got := r.status(); got != status {
		r.t.Fatalf("%v: status %d, want %d\n%s", r.cmd.Args, got, status, r.out)
	}
}

func (r *process) signal(s syscall.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for !so() {
		select {
		case <-ctx.Done():
			t.Fatalf("not in two minutes: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// need fails if a program is missing.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Fatalf("%v: make recipes installs it", err)
		}
	}
}

// short makes the validity of exec and lock one that a test can wait for.
func short(command string) string {
	for _, verb := range []string{"fencepost exec", "fencepost lock"} {
		command = strings.Replace(command, verb, verb+" --validity 3s", 1)
	}
	return command
}
