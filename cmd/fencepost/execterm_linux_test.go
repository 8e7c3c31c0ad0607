package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// terminal opens a pseudo terminal.
func terminal(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return ours, theirs
}

// onTerminal starts exec as the leader of a session on a terminal.
func onTerminal(t *testing.T, script string) (c *exec.Cmd, in *os.File, out *buffer) {
	t.Helper()
	ours, theirs := terminal(t)
	c = command(t, "exec", fileURL(t), "--", "sh", "-c", script)
	c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c, ours, read(ours)
}

// read collects what a terminal shows.
func read(f *os.File) *buffer {
	out := &buffer{}
	go func() { _, _ = io.Copy(out, f) }()
	return out
}

// TestExecTerminal: the command is in the foreground. It reads from the terminal, and Ctrl-C
// reaches it.
func TestExecTerminal(t *testing.T) {
	t.Parallel()
	c, in, out := onTerminal(t, "read x; echo got $x; read y; echo never")
	if _, err := in.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command reads", func() bool { return strings.Contains(out.String(), "got hello") })
	if _, err := in.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	if got := exitStatus(t, c.Wait()); got != 130 {
		t.Errorf("status %d: %s", got, out)
	}
}

// TestExecBetweenCommands: a signal that comes when no command runs is not lost. With --restart there
// would be another command, which never gets it.
func TestExecBetweenCommands(t *testing.T) {
	t.Parallel()
	// The third time there is a pause of a second.
	const text = `n=$(cat "$OUT/n" || echo 0); echo $((n+1)) >"$OUT/n"; [ $n = 3 ] && exec sleep 600; exit 7`
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM} {
		c, errs := script(t, t.TempDir(), "--restart", fileURL(t), text)
		eventually(t, "three commands have ended", func() bool { return strings.Contains(errs.String(), "starting it again in 1s") })
		_ = c.Process.Signal(s)
		if got := exitStatus(t, c.Wait()); got != 7 {
			t.Errorf("%v: status %d: %s", s, got, errs)
		}
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		out := t.TempDir()
		c, _ := script(t, out, "--restart --partitions 1", fileURL(t), text)
		waitFile(t, filepath.Join(out, "n"))
		eventually(t, "three commands have ended", func() bool { return waitFile(t, filepath.Join(out, "n")) == "3" })
		_ = c.Process.Signal(s)
		if got := exitStatus(t, c.Wait()); got != 128+int(s) {
			t.Errorf("group, %v: status %d", s, got)
		}
		if n := waitFile(t, filepath.Join(out, "n")); n != "3" {
			t.Errorf("group, %v: %s commands", s, n)
		}
	}
}

// TestExecByHand: a command that dies of a signal with which people end programs is not started again. On a
// terminal, Ctrl-C reaches the command alone.
func TestExecByHand(t *testing.T) {
	t.Parallel()
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		c, errs := script(t, t.TempDir(), "--restart", fileURL(t), fmt.Sprintf("kill -%d $$", s))
		if got := exitStatus(t, c.Wait()); got != 128+int(s) {
			t.Errorf("%v: status %d: %s", s, got, errs)
		}
	}
}

// TestExecHangUp: the command has ended, and what it has left behind still ends, when SIGHUP comes.
func TestExecHangUp(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	c, errs := script(t, out, "--restart --grace 4s", fileURL(t), `(trap "" TERM HUP; sleep 600) & echo $! >"$OUT/left"; exit 7`)
	waitFile(t, filepath.Join(out, "left"))
	time.Sleep(time.Second)
	_ = c.Process.Signal(syscall.SIGHUP)
	if got := exitStatus(t, c.Wait()); got != 7 {
		t.Errorf("status %d: %s", got, errs)
	}
	if s := errs.String(); strings.Contains(s, "starting it again") {
		t.Error(s)
	}
}

// TestExecGroupHangUp: a terminal has gone, and all commands die of SIGHUP.
func TestExecGroupHangUp(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	c, errs := script(t, out, "--restart --partitions 2", fileURL(t), `echo x >"$OUT/$FENCEPOST_PARTITION"; exec sleep 600`)
	waitFile(t, filepath.Join(out, "0"))
	waitFile(t, filepath.Join(out, "1"))
	_ = c.Process.Signal(syscall.SIGHUP)
	if got := exitStatus(t, c.Wait()); got != 128+int(syscall.SIGHUP) {
		t.Errorf("status %d: %s", got, errs)
	}
}

// TestExecLostAfterQuit: the lead is lost after a signal that ends the command for good. Exec does not lead again.
func TestExecLostAfterQuit(t *testing.T) {
	t.Parallel()
	out, url := t.TempDir(), fileURL(t)
	c, errs := script(t, out, "--restart", url, `trap : QUIT; echo x >"$OUT/runs"; while :; do sleep 1; done`)
	waitFile(t, filepath.Join(out, "runs"))
	_ = c.Process.Signal(syscall.SIGQUIT)
	must(t, "", "step-down", url)
	if got := exitStatus(t, c.Wait()); got != kit.ExitLost {
		t.Errorf("status %d: %s", got, errs)
	}
}

// TestExecLaterSignals: copies of the first SIGTERM do not count. Of later ones the command gets each.
func TestExecLaterSignals(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	c, errs := script(t, out, "", fileURL(t), `n=0; trap 'n=$((n+1)); echo $n >"$OUT/n"; [ $n = 2 ] && exit 5' TERM; echo 0 >"$OUT/n"; while :; do sleep 0.1; done`)
	says := func(n string) {
		t.Helper()
		eventually(t, n+" signals", func() bool { return waitFile(t, filepath.Join(out, "n")) == n })
	}
	says("0")
	_ = c.Process.Signal(syscall.SIGTERM)
	says("1")
	_ = c.Process.Signal(syscall.SIGTERM) // a copy, as of timeout(1)
	time.Sleep(1200 * time.Millisecond)
	says("1")
	_ = c.Process.Signal(syscall.SIGTERM)
	if got := exitStatus(t, c.Wait()); got != 5 {
		t.Errorf("status %d: %s", got, errs)
	}
}

// TestExecIgnored: a shell that starts a program in the background lets it ignore Ctrl-C.
func TestExecIgnored(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	c := command(t, "exec")
	c.Path, c.Args = "/bin/sh", []string{"sh", "-c", `trap "" INT; echo x >"$OUT/ignored"; exec "$@"`, "sh", self, "exec", "--wait", "30s", fileURL(t), "--", "sh", "-c", `echo x >"$OUT/runs"; sleep 2; exit 6`}
	c.Env = append(c.Env, "OUT="+out)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	waitFile(t, filepath.Join(out, "ignored"))
	time.Sleep(100 * time.Millisecond) // it has hardly begun
	_ = c.Process.Signal(syscall.SIGINT)
	waitFile(t, filepath.Join(out, "runs"))
	_ = c.Process.Signal(syscall.SIGINT)
	if got := exitStatus(t, c.Wait()); got != 6 {
		t.Errorf("status %d", got)
	}
}

// TestExecCtrlZ: Ctrl-Z stops the command and exec, as a shell expects, and both go on together.
func TestExecCtrlZ(t *testing.T) {
	t.Parallel()
	ours, theirs := terminal(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	c.Env = append(os.Environ(), asCommand+"=1", "PS1=prompt:")
	c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	out := read(ours)
	say := func(text, until string) {
		t.Helper()
		if _, err := ours.WriteString(text); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("waiting for %q there is %s", until, out)
			}
		})
		eventually(t, until, func() bool { return strings.Contains(out.String(), until) })
	}
	say(self+" exec "+fileURL(t)+" -- sh -c 'echo re''ady; read x; echo got $x'\n", "ready")
	say("\x1a", "Stopped")
	eventually(t, "the next prompt", func() bool { return strings.Count(out.String(), "prompt:") == 2 })
	say("fg\n", "")
	say("again\n", "got again")
	say("echo status $?\n", "status 0")
}

// TestExecTermNearTheDeadline: the command was told to end because no heartbeat gets through. A SIGTERM of the
// user reaches it, too.
func TestExecTermNearTheDeadline(t *testing.T) {
	t.Parallel()
	out, url := t.TempDir(), fileURL(t)
	c, errs := script(t, out, "--validity 20s --grace 9500ms", url,
		`trap 'echo told >>"$OUT/told"' TERM; touch "$OUT/ready"; while :; do sleep 0.05; done`)
	eventually(t, "its trap is set", func() bool { _, err := os.Stat(filepath.Join(out, "ready")); return err == nil })
	dir := strings.TrimPrefix(url, "file://")
	if err := os.Rename(dir, dir+".gone"); err != nil {
		t.Fatal(err)
	}
	waitFile(t, filepath.Join(out, "told"))
	_ = c.Process.Signal(syscall.SIGTERM)
	eventually(t, "the signal reaches it", func() bool { return waitFile(t, filepath.Join(out, "told")) == "told\ntold" })
	if got := exitStatus(t, c.Wait()); got != kit.ExitLost {
		t.Errorf("status %d: %s", got, errs)
	}
}
