package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
)

// fullPipe returns the end to write to of a pipe that is full and that nobody reads, and the other end.
func fullPipe(t testing.TB) (in, out *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	fill(t, in)
	return in, out
}

// fill writes until nothing more fits.
func fill(t testing.TB, f *os.File) {
	t.Helper()
	c, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{4096, 1} {
		_ = c.Write(func(fd uintptr) bool {
			for err = nil; err == nil; {
				_, err = syscall.Write(int(fd), make([]byte, n))
			}
			return true
		})
		if !errors.Is(err, syscall.EAGAIN) {
			t.Fatal(err)
		}
	}
}

// badErrors are standard errors that cannot be written.
var badErrors = map[string]func(t testing.TB) *os.File{
	"nobody reads it": func(t testing.TB) *os.File { in, _ := fullPipe(t); return in },
	"its reader has gone": func(t testing.TB) *os.File {
		in, out := fullPipe(t)
		_ = out.Close()
		return in
	},
	"its disk is full": func(t testing.TB) *os.File {
		f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	},
}

// endsBy signals a process and waits until it has ended, for a minute at most.
func endsBy(t testing.TB, c *exec.Cmd, sig syscall.Signal) int {
	t.Helper()
	stuck := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	_ = c.Process.Signal(sig)
	status := exitStatus(t, c.Wait())
	if !stuck.Stop() {
		t.Errorf("%v: alive a minute after %v", c.Args[1:], sig)
	}
	return status
}

// Standard error cannot be written. Whoever leads works all the same, and gives up the lead at a signal: a standby takes over.
func TestBlockedErrors(t *testing.T) {
	for fault, open := range badErrors {
		for _, flags := range [][]string{{}, {"-v"}} {
			name := strings.Join(append([]string{fault}, flags...), " ")
			t.Run("exec, "+name, func(t *testing.T) {
				t.Parallel()
				url, out := fileURL(t), filepath.Join(t.TempDir(), "out")
				c := command(t, append(append([]string{"exec"}, flags...), url, "--", "sh", "-c", "echo begun > "+out+"; exec sleep 1000 2>/dev/null")...)
				c.Stderr = open(t)
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Process.Kill() }()
				waitFile(t, out)
				if got := endsBy(t, c, syscall.SIGTERM); got != 143 {
					t.Errorf("status %d", got)
				}
				if got := exitStatus(t, command(t, "exec", "--wait", "1m", "--validity", "1h", url, "--", "true").Run()); got != 0 {
					t.Errorf("the next one ends with status %d", got)
				}
			})
			t.Run("append, "+name, func(t *testing.T) {
				t.Parallel()
				url := newLog(t, fileURL(t))
				c := command(t, append(append([]string{"append"}, flags...), url)...)
				c.Stderr = open(t)
				in, err := c.StdinPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Process.Kill() }()
				_, _ = io.WriteString(in, "one\ntwo\n")
				eventually(t, "what is appended can be read", func() bool { return contents(t, url) == "one\ntwo\n" })
				if got := endsBy(t, c, syscall.SIGTERM); got != 143 {
					t.Errorf("status %d", got)
				}
				must(t, "three\n", "append", url)
			})
		}
		t.Run("compact --watch -v, "+fault, func(t *testing.T) {
			t.Parallel()
			url := newLog(t, fileURL(t))
			must(t, "one\ntwo\n", "append", url)
			c := command(t, "compact", "--watch", "-v", "--min-objects", "1", "--interval", "100ms", url)
			c.Stderr = open(t)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Process.Kill() }()
			eventually(t, "the log is folded", func() bool { return folded(t, url) })
			if got := endsBy(t, c, syscall.SIGTERM); got != 143 {
				t.Errorf("status %d", got)
			}
			must(t, "", "compact", url)
		})
	}
}

func folded(t testing.TB, url string) bool {
	return parsed[struct {
		FloorOffset uint64 `json:"floor_offset"`
	}](t, "compact", "--dry-run", "--json", url).FloorOffset > 0
}

// A compactor whose rounds nobody reads gives up the lead.
func TestRoundsThatNobodyReads(t *testing.T) {
	t.Parallel()
	url := newLog(t, fileURL(t))
	must(t, "one\ntwo\n", "append", url)
	c := command(t, "compact", "--watch", "--json", "--min-objects", "1", "--interval", "100ms", url)
	c.Stdout, _ = fullPipe(t)
	var errs buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }()
	eventually(t, "it compacts", func() bool { return strings.Contains(errs.String(), "this is the compactor") })
	must(t, "", "compact", "--validity", "1h", url) // waits for it
	if got := exitStatus(t, c.Wait()); got != 1 || !strings.Contains(errs.String(), "nobody has read it") {
		t.Errorf("status %d: %s", got, &errs)
	}
}

// A publisher whose rounds nobody reads ends, and says why. The table is published.
func TestVersionsThatNobodyReads(t *testing.T) {
	t.Parallel()
	url := newLog(t, fileURL(t))
	commitParquet(t, url, 1)
	c := command(t, "publish", "--watch", "--json", "--every", "10ms", url)
	c.Stdout, _ = fullPipe(t)
	var errs buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill() }()
	if got := exitStatus(t, c.Wait()); got != 1 || !strings.Contains(errs.String(), "nobody has read it") {
		t.Errorf("status %d: %s", got, &errs)
	}
	if out := must(t, "", "published", "--json", url); !strings.Contains(out, `"files":1`) && !strings.Contains(out, `"files": 1`) {
		t.Error(out)
	}
}

// At a terminal whose output is stopped by Ctrl-S, append reads on and commits what it reads. It ends when its input does.
func TestAppendAtAStoppedTerminal(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{{"append"}, {"append", "-v"}} {
		url := newLog(t, fileURL(t))
		ours, theirs := terminal(t)
		c := command(t, append(flags, url)...)
		c.Stdin, c.Stdout, c.Stderr = theirs, theirs, theirs
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if _, err := ours.WriteString("\x13"); err != nil { // Ctrl-S
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		_ = theirs.Close()
		defer func() { _ = c.Process.Kill() }()
		write := func(s string) {
			if _, err := ours.WriteString(s); err != nil {
				t.Fatal(err)
			}
		}
		write("one\n")
		eventually(t, "what is typed can be read", func() bool { return contents(t, url) == "one\n" })
		write("two\n\x04") // Ctrl-D
		stuck := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
		if got := exitStatus(t, c.Wait()); got != 0 || !stuck.Stop() {
			t.Errorf("%v: status %d", flags, got)
		}
		if got := contents(t, url); got != "one\ntwo\n" {
			t.Errorf("%v: %q", flags, got)
		}
	}
}

// What standard error had no room for is counted, and said when somebody reads it again. The end of the process does not
// wait for it, and its last words are there in a pipe that is read.
func TestErrorsThatWereLost(t *testing.T) {
	t.Parallel()
	in, out := fullPipe(t)
	n := kit.NewNotes(in)
	for range 1500 {
		_, _ = n.Write([]byte("a line\n"))
	}
	n.Lines.Wait(time.Millisecond)
	all := make(chan string)
	go func() {
		b, _ := io.ReadAll(out)
		all <- string(b)
	}()
	n.Lines.Wait(time.Minute)
	_ = in.Close()
	if s := <-all; !strings.HasSuffix(s, "a line\nfencepost: 499 lines were not written: standard error was blocked, or failed\n") {
		t.Errorf("it ends with %q", s[max(len(s)-200, 0):])
	}
}

// The file with the deadline cannot be written: its disk hangs, or the command has put a pipe there. The command works on
// for as long as the lease is renewed, and the lead is given up at its end.
func TestBlockedDeadlineFile(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	c := command(t, "exec", "--validity", "8s", url, "--", "sh", "-c", "mkfifo $FENCEPOST_DEADLINE_FILE.new && exec sleep 10")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	if got := exitStatus(t, c.Wait()); got != 0 || !stuck.Stop() {
		t.Errorf("status %d", got)
	}
	if got := exitStatus(t, command(t, "exec", "--no-wait", url, "--", "true").Run()); got != 0 {
		t.Errorf("the next one ends with status %d", got)
	}
}

// A pipe in the place of a Parquet file is refused. Nobody may ever write to it, and whoever opens it leads meanwhile.
func TestPipeInPlaceOfAFile(t *testing.T) {
	url, pipe := newLog(t, memURL(t)), filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "commit", url, pipe); r.status != 1 || !strings.Contains(r.err, "pipe: it is no regular file") {
		t.Errorf("status %d: %s", r.status, r.err)
	}
	events, r := speaks(t, fmt.Sprintf(`{"files":[%q]}`+"\n", pipe), url)
	if e := events[len(events)-1]; r.status != 1 || e.Event != "lost" || e.Epoch > 1 || !strings.Contains(e.Why, "pipe: it is no regular file") {
		t.Errorf("status %d: %s%s", r.status, r.out, r.err)
	}
}
