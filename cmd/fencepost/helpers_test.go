package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/probe"
)

// asCommand makes the test binary the command itself, so that tests can kill it.
const asCommand = "FENCEPOST_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// buffer is written to by the command while a test looks.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// result of a command.
type result struct {
	status   int
	out, err string
}

// inProcess runs the command in this process, where mem:// stores last.
func inProcess(ctx context.Context, in io.Reader, args ...string) result {
	var out, errs buffer
	a := &app{in: in, out: &out, err: &errs, open: store.Open}
	status := a.run(ctx, args)
	return result{status, out.String(), errs.String()}
}

func run(t testing.TB, in string, args ...string) result {
	t.Helper()
	return inProcess(t.Context(), strings.NewReader(in), args...)
}

// must runs the command and wants status 0.
func must(t testing.TB, in string, args ...string) string {
	t.Helper()
	r := run(t, in, args...)
	if r.status != 0 {
		t.Fatalf("fencepost %s: status %d\n%s", strings.Join(args, " "), r.status, r.err)
	}
	return r.out
}

// command is the command as a process of its own.
func command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	return c
}

// newLog makes a log without the time that a full probe takes.
func newLog(t testing.TB, rawURL string) string {
	t.Helper()
	st := openStore(t, rawURL)
	_, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Grace: -1, Probe: &probe.Options{Clients: 2, Rounds: 1, Keys: 1, UploadSize: 1}})
	if err != nil {
		t.Fatal(err)
	}
	return rawURL
}

func openStore(t testing.TB, rawURL string) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// memURL names a store of the test's own.
func memURL(t testing.TB) string { return "mem://test/" + url.PathEscape(t.Name()) }

func fileURL(t testing.TB) string {
	return (&url.URL{Scheme: "file", Path: filepath.Join(t.TempDir(), "log")}).String()
}

func contents(t testing.TB, rawURL string) string {
	t.Helper()
	r, err := reader.Open(t.Context(), openStore(t, rawURL), nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for rec, err := range r.Read(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		b.Write(rec.Value)
	}
	return b.String()
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came about: " + what)
		}
	}
}

func writeFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// flip changes a bit of an object.
func flip(t testing.TB, st store.Store, key string) {
	t.Helper()
	b, _, err := store.ReadAll(t.Context(), st, key, 1<<30, nil)
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	if _, err := st.Put(t.Context(), key, b, nil); err != nil {
		t.Fatal(err)
	}
}

func exitStatus(t testing.TB, err error) int {
	t.Helper()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	t.Fatal(err)
	return -1
}
