package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP, syscall.SIGTERM} {
		c, errs := script(t, t.TempDir(), "--restart", fileURL(t), `[ -e "$OUT/second" ] && exec sleep 600; [ -e "$OUT/first" ] && touch "$OUT/second"; touch "$OUT/first"; exit 7`)
		eventually(t, "the second command has ended", func() bool { return strings.Contains(errs.String(), "starting it again in 500ms") })
		_ = c.Process.Signal(s)
		if got := exitStatus(t, c.Wait()); got != 7 {
			t.Errorf("%v: status %d: %s", s, got, errs)
		}
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
