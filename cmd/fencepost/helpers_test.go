package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// asCommand makes the test binary the command itself, so that tests can kill it.
const asCommand = "FENCEPOST_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	// Under nohup, or in the background of a shell, some signals are ignored, also by the commands
	// that the tests start. A signal that is caught has its default effect in a command.
	for _, sig := range kit.Passed {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
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
	a := &kit.Kit{In: in, Out: &out, Err: &errs, Open: store.Open}
	status := runWith(ctx, a, args)
	return result{status, out.String(), errs.String()}
}

func run(t testing.TB, in string, args ...string) result {
	t.Helper()
	return inProcess(t.Context(), strings.NewReader(in), args...)
}

// Must runs the command and wants status 0.
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
	fixture.Put(t, openStore(t, rawURL), layout.FormatKey, document.Sum(layout.FormatKey, []byte(fixture.JSON(t, logtest.Format()))))
	return rawURL
}

// parsed runs the command and returns the document of JSON that it prints.
func parsed[T any](t testing.TB, args ...string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(must(t, "", args...)), &v); err != nil {
		t.Fatal(err)
	}
	return v
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
	all, err := logtest.Read(openStore(t, rawURL), 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(all, "")
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
	b, _, err := store.Read(t.Context(), st, key, &store.ReadOptions{Limit: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	b = bytes.Clone(b)
	b[len(b)/2] ^= 1
	fixture.Put(t, st, key, b)
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
