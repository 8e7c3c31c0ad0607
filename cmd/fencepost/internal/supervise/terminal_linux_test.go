package supervise

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// supervised is a helper of these tests, the leader of a session on a terminal. It supervises a shell
// script while a lease lasts.
func supervised(script, lease string) {
	began := Now()
	lasts, _ := time.ParseDuration(lease)
	status, err := Run(context.Background(), &Command{
		Path: "/bin/bash", Args: []string{"bash", "-c", script}, Env: os.Environ(), Watchdog: []string{"supervise.test", "watchdog"},
		Held: func() time.Duration { return lasts - Now().Sub(began) }, Grace: time.Second,
	})
	group, _ := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	fmt.Println("status", status.Exit(), err, "foreground", group == syscall.Getpgrp())
}

// helped runs such a helper, and returns what its terminal shows. Each time that it shows the next of
// the prompts, the keys after it are pressed.
func helped(t *testing.T, lease, script string, dialogue ...string) string {
	t.Helper()
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	if err := unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe", "supervised", script, lease)
	c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	late := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer late.Stop()
	var out strings.Builder
	b := make([]byte, 4096)
	for {
		n, err := ours.Read(b)
		out.Write(b[:n])
		if len(dialogue) > 0 && strings.Contains(out.String(), dialogue[0]) {
			_, _ = io.WriteString(ours, dialogue[1])
			dialogue = dialogue[2:]
		}
		if err != nil { // all have closed it
			break
		}
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	return out.String()
}

// The command has the terminal. It does not ignore SIGTTOU: so a job in its background that changes the
// terminal is stopped.
func TestSignalsOfTheCommand(t *testing.T) {
	out := helped(t, "1h", `grep SigIgn /proc/self/status`)
	var ignored uint64
	_, after, _ := strings.Cut(out, "SigIgn:")
	_, err := fmt.Sscanf(after, "%x", &ignored)
	if err != nil || ignored&(1<<(syscall.SIGTTOU-1)) != 0 || !strings.Contains(out, "status 0 <nil> foreground true") {
		t.Errorf("it ignores %x, %v: %s", ignored, err, out)
	}
}

// Nobody can continue a session's leader. So Ctrl-Z has no effect on its command, as on any program.
func TestCtrlZWithoutAShell(t *testing.T) {
	out := helped(t, "1h", `echo ready; read x; echo got $x`, "ready", "\x1a", "^Z", "on\n")
	if !strings.Contains(out, "got on") || !strings.Contains(out, "status 0 <nil>") {
		t.Error(out)
	}
}

// The command has given the terminal to a job of its own, as a shell does, and is killed with it. Then
// this process gets the terminal.
func TestTerminalOfTheDead(t *testing.T) {
	out := helped(t, "4s", `set -m; sleep 600; true`)
	if !strings.Contains(out, "the lease is lost foreground true") {
		t.Error(out)
	}
}
