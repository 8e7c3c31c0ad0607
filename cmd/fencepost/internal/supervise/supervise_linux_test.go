package supervise

import (
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
)

// Until main begins, this is the first thread of the process.
func init() {
	if len(os.Args) > 1 && os.Args[1] == "headless" {
		go time.Sleep(time.Minute)
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread alone
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == "supervised" {
		supervised(os.Args[2], os.Args[3])
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == "supervised-chain" {
		supervisedChain(os.Args[2], os.Args[3])
		os.Exit(0)
	}
	if len(os.Args) > 3 && os.Args[1] == "chain" {
		chain(os.Args[2], strings.Contains(os.Args[3], "sessions"))
	}
	if len(os.Args) > 2 && os.Args[1] == "slow" {
		time.Sleep(500 * time.Millisecond)
		os.Args = os.Args[1:]
	}
	if len(os.Args) > 1 && os.Args[1] == "watchdog" {
		if err := Watchdog(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A deadline that arrives when the watchdog kills already, or when the command has ended and
// its leftovers are being killed, does not stop it.
func TestNoLateExtension(t *testing.T) {
	fresh := func() *watchdog { return &watchdog{reports: make(chan report, 8), until: 100, stopping: true} }
	w := fresh()
	w.obey(order{Until: 200})
	if w.until != 200 {
		t.Errorf("a new deadline in time: %v", w.until)
	}
	if w.obey(order{Until: 150}); w.until != 200 {
		t.Errorf("an earlier deadline: %v", w.until)
	}
	w = fresh()
	w.obey(order{Kill: true})
	if w.obey(order{Until: 200}); w.until != 0 {
		t.Errorf("while it kills: %v", w.until)
	}
	w = fresh()
	w.status = &Status{}
	if w.obey(order{Until: 200}); w.until != 100 {
		t.Errorf("when the command has ended: %v", w.until)
	}
}

// A signal for a process never reaches a later one that has its number.
func TestSendToTheSameProcessOnly(t *testing.T) {
	c := exec.Command("sleep", "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	p, ok := look(c.Process.Pid)
	if !ok || p.parent != os.Getpid() || p.dead() {
		t.Fatalf("%+v, %v", p, ok)
	}
	other := p
	other.began--
	other.send(syscall.SIGKILL)
	if p, ok = look(c.Process.Pid); !ok || p.dead() {
		t.Error("another process was killed")
	}
	p.send(syscall.SIGKILL)
	if err := c.Wait(); err == nil {
		t.Error("it was not killed")
	}
}

// child starts a process in a group of its own. It is killed in the end.
func child(t *testing.T, path string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(path, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

// until waits until a process is as it should be.
func until(t *testing.T, pid int, what string, is func(process) bool) (p process) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if p, _ = look(pid); is(p) {
			return p
		}
	}
	t.Fatalf("%s: %+v", what, p)
	return p
}

// A process whose first thread has ended looks like a dead one. The other threads work on, so it is killed.
func TestKillWithoutTheFirstThread(t *testing.T) {
	c := child(t, "/proc/self/exe", "headless")
	p := until(t, c.Process.Pid, "the first thread has not ended", func(p process) bool { return p.state == 'Z' })
	kill([]process{p})
	until(t, c.Process.Pid, "it lives", process.dead)
}

// A process that dies while the table is read may have started another, which the table does not show. So
// one that has died is a reason to look again.
func TestOrphansOfTheDead(t *testing.T) {
	c := child(t, "/bin/true")
	until(t, c.Process.Pid, "it does not end", process.dead)
	s := &supervisor{Command: &Command{}}
	if found := s.orphans(); len(found) != 1 || found[0].pid != c.Process.Pid {
		t.Errorf("found %+v", found)
	}
	if found := s.orphans(); len(found) != 0 {
		t.Errorf("then found %+v", found)
	}
	// One that started another before it died.
	seen := 0
	late := child(t, "sleep", "60")
	s.clear(func() []process {
		if seen++; seen == 1 {
			return []process{{pid: c.Process.Pid, state: 'Z', threads: 1}}
		}
		if p, ok := look(late.Process.Pid); ok && !p.dead() {
			return []process{p}
		}
		return nil
	})
	if p, ok := look(late.Process.Pid); ok && !p.dead() || seen < 2 {
		t.Errorf("after %d looks %+v lives", seen, p)
	}
}

// The name of a process is no trap for the parser.
func TestLookBearsAnyName(t *testing.T) {
	dir := t.TempDir()
	name := dir + "/a) R 1 (b"
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sleep, name); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(name, "60")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	if p, ok := look(c.Process.Pid); !ok || p.parent != os.Getpid() {
		t.Errorf("%+v, %v", p, ok)
	}
}

// A lease that is about to end starts nothing.
func TestRunWithoutALease(t *testing.T) {
	for _, held := range []time.Duration{0, time.Second} {
		_, err := Run(context.Background(), &Command{Path: "/bin/true", Held: func() time.Duration { return held }, Grace: time.Second})
		if !errors.Is(err, ErrLost) {
			t.Errorf("held %v: %v", held, err)
		}
	}
}

// By hand the watchdog says what it is.
func TestWatchdogByHand(t *testing.T) {
	for _, args := range [][]string{nil, {"a", "b", "c", "d", "e"}, {"3", "4", "c", "d"}} {
		if err := Watchdog(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

// A pause between reading the clock and reading the lease makes the deadline earlier, never later.
func TestDeadlineIsNeverLate(t *testing.T) {
	ends := Now().Add(time.Minute)
	s := &supervisor{Command: &Command{Held: func() time.Duration {
		time.Sleep(20 * time.Millisecond)
		return ends.Sub(Now())
	}}}
	if !s.look() || s.offered > ends {
		t.Errorf("offered %v, the lease ends at %v", s.offered, ends)
	}
}

// A watchdog that confirms nothing is frozen. The supervisor ends the command at the last deadline
// that was confirmed, although the lease goes on.
func TestConfirmedDeadline(t *testing.T) {
	frozen := exec.Command("sleep", "60")
	if err := frozen.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = frozen.Process.Kill(); _ = frozen.Wait() }()
	_, orders, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer orders.Close()
	s := &supervisor{Command: &Command{Held: func() time.Duration { return time.Minute }, Grace: time.Second}, watchdog: frozen.Process.Pid, orders: orders}
	s.confirmed = Now().Add(30 * time.Second)
	if s.step(); s.lost || s.asked != 0 {
		t.Error("it ends a command in time")
	}
	s.confirmed = Now().Add(500 * time.Millisecond)
	if s.step(); !s.lost || s.asked == 0 {
		t.Error("it does not end the command near the confirmed deadline")
	}
	s.confirmed = Now()
	for range 20 {
		s.step()
	}
	if err := frozen.Wait(); err == nil {
		t.Error("the frozen watchdog was not killed")
	}
}

// A command may read its first deadline as soon as it runs.
func TestRenewedBeforeTheCommand(t *testing.T) {
	told := filepath.Join(t.TempDir(), "told")
	var first sync.Once
	status, err := Run(t.Context(), &Command{
		Path: "/bin/sh", Args: []string{"sh", "-c", `test -e "$1"`, "sh", told}, Env: os.Environ(), Watchdog: []string{"supervise.test", "watchdog"},
		Held: func() time.Duration { return time.Minute }, Grace: time.Second,
		Renewed: func(Moment) {
			first.Do(func() {
				time.Sleep(200 * time.Millisecond) // longer than a command takes to start
				if err := os.WriteFile(told, nil, 0o600); err != nil {
					t.Error(err)
				}
			})
		},
	})
	if err != nil || status.Exit() != 0 {
		t.Errorf("the command began before it was told its deadline: %v, %v", status, err)
	}
}
