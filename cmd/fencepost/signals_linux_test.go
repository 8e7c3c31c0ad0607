package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// TestBlockedOutput: nobody reads standard output, and one signal ends cat.
func TestBlockedOutput(t *testing.T) {
	t.Parallel()
	url := newLog(t, fileURL(t))
	must(t, strings.Repeat(strings.Repeat("x", 1000)+"\n", 2000), "append", url)
	for _, args := range [][]string{{"cat", url}, {"cat", "--follow", url}, {"cat", "--consumer", "c", url}} {
		c := command(t, args...)
		var errs buffer
		c.Stderr = &errs
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
			t.Fatal(err, &errs)
		}
		time.Sleep(300 * time.Millisecond) // until the pipe is full
		ended := make(chan struct{})
		stuck := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill(); close(ended) })
		_ = c.Process.Signal(syscall.SIGTERM)
		state, err := c.Process.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if !stuck.Stop() || state.ExitCode() != 143 {
			t.Errorf("%v: status %v: %s", args, state, &errs)
		}
	}
	if got := must(t, "", "cat", "--consumer", "c", url); len(got) < 1001*1000 {
		t.Errorf("the position counts what nobody has read: only %d bytes are left", len(got))
	}
}

// TestNamedPipe: append says that it waits for its input to be opened, and a signal ends that.
func TestNamedPipe(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var errs buffer
	a := &kit.Kit{Out: io.Discard, Err: &errs, Open: kit.Open, Patience: 10 * time.Millisecond}
	status := make(chan int)
	go func() { status <- runWith(ctx, a, []string{"append", fileURL(t), pipe}) }()
	eventually(t, "it says for what it waits", func() bool { return strings.Contains(errs.String(), "still opening "+pipe) })
	cancel(&kit.InterruptedError{Signal: syscall.SIGTERM})
	if got := <-status; got != 143 {
		t.Errorf("status %d: %s", got, &errs)
	}
	if n := strings.Count(errs.String(), "still opening"); n > 8 {
		t.Errorf("it said so %d times", n)
	}
}

// TestHangUp: a leader whose terminal goes gives up the lead.
func TestHangUp(t *testing.T) {
	t.Parallel()
	url := newLog(t, fileURL(t))
	c := command(t, "append", url)
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var errs buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it leads", func() bool { return strings.Contains(errs.String(), "leading in epoch") })
	_ = c.Process.Signal(syscall.SIGHUP)
	if got := exitStatus(t, c.Wait()); got != 129 {
		t.Errorf("status %d: %s", got, &errs)
	}
	if s := must(t, "", "status", url); !strings.Contains(s, "resigned") && !strings.Contains(s, "nobody") {
		t.Errorf("it still leads:\n%s", s)
	}
}

// TestExecReload: a command for which SIGHUP is no end goes on, and is started again when it ends later.
func TestExecReload(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	c, errs := script(t, out, "--restart", fileURL(t),
		`echo x >>"$OUT/begun"; trap 'echo x >>"$OUT/told"' HUP; touch "$OUT/ready"; while [ ! -e "$OUT/end" ]; do sleep 0.05; done; rm "$OUT/end"; exit 7`)
	waitFile(t, filepath.Join(out, "begun"))
	eventually(t, "its trap is set", func() bool { _, err := os.Stat(filepath.Join(out, "ready")); return err == nil })
	_ = c.Process.Signal(syscall.SIGHUP)
	waitFile(t, filepath.Join(out, "told"))
	if err := os.WriteFile(filepath.Join(out, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is started again", func() bool { return waitFile(t, filepath.Join(out, "begun")) == "x\nx" })
	_ = c.Process.Signal(syscall.SIGTERM)
	_ = c.Wait()
	if s := errs.String(); !strings.Contains(s, "starting it again") {
		t.Error(s)
	}
}
