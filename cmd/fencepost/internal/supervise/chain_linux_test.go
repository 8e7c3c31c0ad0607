package supervise

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// chainLife bounds a chain that nobody kills.
	chainLife = 15 * time.Second
	// chainLease is how long the lease of a chain lasts when it is renewed no more.
	chainLease = 3 * time.Second
	// chainLate is how late it may be killed on a machine that does much else.
	chainLate = 5 * time.Second
)

// chain is a command in which each process writes the time into a file, starts the next one, and ends. A process that
// is found in a table of processes has often ended before a signal reaches it. With sessions each one leads its own.
func chain(file string, sessions bool) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	signal.Ignore(syscall.SIGTERM)
	for { // The test may harm a guardian first.
		if _, err := os.Stat(file + ".go"); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	runtime.LockOSThread()
	fd, end := f.Fd(), int64(Now().Add(chainLife))
	var at unix.Timespec
	// A forked process has this thread alone, so nothing may enter the scheduler.
	for {
		if sessions {
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
		}
		_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, unix.CLOCK_BOOTTIME, uintptr(unsafe.Pointer(&at)), 0)
		if at.Sec*1e9+at.Nsec > end {
			break
		}
		_, _, _ = syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&at)), unsafe.Sizeof(at))
		if pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0); errno == 0 && pid != 0 {
			break
		}
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
}

// links returns when the last process of a chain wrote, and how many did.
func links(t *testing.T, file string) (last Moment, n int) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for ; len(b) >= 16; b = b[16:] {
		last = Moment(int64(binary.NativeEndian.Uint64(b))*1e9 + int64(binary.NativeEndian.Uint64(b[8:])))
		n++
	}
	return last, n
}

// supervisedChain is a helper of these tests: it supervises a chain while a lease lasts, which is renewed until the chain begins.
// In the end it says when Run has returned.
func supervisedChain(file, how string) {
	if strings.Contains(how, "swept") {
		own = func() cgroup { return "" }
	}
	ends := Now()
	_, err := Run(context.Background(), &Command{
		Path: "/proc/self/exe", Args: []string{"chain", "chain", file, how}, Env: os.Environ(), NoInput: true,
		Watchdog: []string{"supervise.test", "watchdog"}, Grace: 500 * time.Millisecond,
		Held: func() time.Duration {
			now := Now()
			if _, err := os.Stat(file + ".last"); err != nil {
				ends = now.Add(chainLease)
			}
			return ends.Sub(Now())
		},
	})
	fmt.Println(int64(Now()), err)
}

// chained runs such a helper. Harm is called when the chain is about to begin, or runs if it is to. When the guardians have
// ended, but for one that is frozen, the chain must have too. It returns false if the machine was too slow to begin.
func chained(t *testing.T, how string, runs bool, harm func(supervisor, watchdog int)) bool {
	file := filepath.Join(t.TempDir(), "lines")
	c := exec.Command("/proc/self/exe", "supervised-chain", file, how)
	var out strings.Builder
	c.Stdout, c.Stderr = &out, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = c.Wait() }()
	defer func() { _ = c.Process.Kill(); <-ended }()
	over := func(pid int) bool {
		p, ok := look(pid)
		return !ok || p.dead() || p.state == 'T'
	}
	line := "chain\x00chain\x00" + file
	var command process
	survivor := 0 // if it is the last one
	eventually(t, "the command waits below its watchdog", func() bool {
		for _, p := range descendants(c.Process.Pid) {
			if begins(p.pid, line) {
				command = p
			}
			if strings.Contains(how, "survived") && begins(p.pid, "supervise.test\x00watchdog\x00survivor") {
				survivor = p.pid
			}
		}
		_, err := os.Stat(file)
		return command.pid != 0 && err == nil || over(c.Process.Pid)
	})
	if over(c.Process.Pid) {
		return false
	}
	start := func() {
		for _, suffix := range []string{".last", ".go"} {
			if err := os.WriteFile(file+suffix, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if runs {
		start()
		eventually(t, "the chain runs", func() bool { _, n := links(t, file); return n > 1 || over(c.Process.Pid) })
	}
	harm(c.Process.Pid, command.parent)
	start()
	ends := Now().Add(chainLease)
	at := Now()
	eventually(t, "the guardians have ended", func() bool {
		at = Now()
		return over(c.Process.Pid) && over(command.parent) && (survivor == 0 || over(survivor))
	})
	if strings.Contains(how, "outlived") { // the guardians are frozen, or dead
		// A table of processes does not show all of a chain. The kernel continues a watchdog that is stopped when its supervisor
		// dies, so nothing may be left.
		in, err := filepath.Glob(filepath.Join(string(own()), fmt.Sprintf("%s%d-*", cagePrefix, c.Process.Pid), "1"))
		if err != nil {
			t.Fatal(err)
		}
		at = Now()
		for _, dir := range in {
			eventually(t, "the chain has ended", func() bool { at = Now(); return !cgroup(dir).live() })
		}
		if begins(command.parent, "supervise.test\x00watchdog") { // it is frozen
			_ = syscall.Kill(command.parent, syscall.SIGKILL)
		}
	}
	last, n := links(t, file)
	if n == 0 {
		return false
	}
	if last > ends.Add(chainLate) {
		t.Errorf("of %d processes the last one wrote %v after the deadline", n, last.Sub(ends))
	}
	if last > at {
		t.Error("it wrote when all should have been dead")
	}
	for _, p := range processes() {
		if !p.dead() && begins(p.pid, line) {
			t.Errorf("%+v is alive", p)
		}
	}
	if p, ok := look(c.Process.Pid); ok && !p.dead() {
		return true // it is frozen
	}
	<-ended
	var returned int64
	if _, err := fmt.Sscan(out.String(), &returned); out.Len() > 0 && (err != nil || last > Moment(returned)) {
		t.Errorf("it wrote after Run had returned: %s", out.String())
	}
	return true
}

// A chain of processes cannot outrun its end, whichever guardian is frozen or killed: neither where a cgroup can be made, nor
// where processes are looked for. If both guardians are killed, only a cgroup helps.
//
// guard:frozen-watchdog. Without this check: the watchdog is frozen, so it stays the parent of what the command leaves; exec
// reads a table with more dead processes each time; the lease ends, and the chain goes on to write.
func TestChain(t *testing.T) {
	freeze := func(pid int) { _ = syscall.Kill(pid, syscall.SIGSTOP) }
	kill := func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }
	probe, _ := newCgroup([]string{"supervise.test", "watchdog"})
	defer probe.remove()
	for name, c := range map[string]struct {
		runs bool
		harm func(supervisor, watchdog int)
	}{
		"watchdog frozen":   {false, func(_, w int) { freeze(w) }},
		"watchdog killed":   {true, func(_, w int) { kill(w) }},
		"supervisor frozen": {false, func(s, _ int) { freeze(s) }},
		"supervisor killed": {true, func(s, _ int) { kill(s) }},
		"nobody harmed":     {false, func(int, int) {}},
		"both killed":       {true, func(s, w int) { kill(s); kill(w) }},
	} {
		for _, how := range []string{"swept", "swept sessions", "caged", "caged sessions"} {
			caged := strings.Contains(how, "caged")
			if caged && probe == "" || !caged && name == "both killed" {
				continue // see doc.go
			}
			if name == "both killed" {
				how += " survived"
			}
			t.Run(name+", "+how, func(t *testing.T) {
				for tries := 1; !chained(t, how, c.runs, c.harm); tries++ {
					if tries == 5 {
						t.Fatal("the chain did not begin")
					}
				}
			})
			if t.Failed() {
				return // a chain that nobody ends takes its time
			}
		}
	}
}

// In a cgroup a command ends at its deadline also if one guardian is killed and the other frozen, or both are frozen.
//
// guard:survivor. Without this check: an operator stops the watchdog in a debugger, and exec is killed; nobody is left who can kill
// the command; the lease ends, another machine leads, and the command goes on to write.
func TestOutlived(t *testing.T) {
	stop := func(pid int) {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		eventually(t, "it is frozen", func() bool { p, ok := look(pid); return !ok || p.state == 'T' })
	}
	kill := func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }
	probe, _ := newCgroup([]string{"supervise.test", "watchdog"})
	defer probe.remove()
	if probe == "" {
		return // see doc.go
	}
	for name, harm := range map[string]func(supervisor, watchdog int){
		"supervisor killed, watchdog frozen": func(s, w int) { stop(w); kill(s) },
		"supervisor frozen, watchdog killed": func(s, w int) { stop(s); kill(w) },
		"both frozen":                        func(s, w int) { stop(s); stop(w) },
	} {
		t.Run(name, func(t *testing.T) {
			for tries := 1; !chained(t, "caged outlived", true, harm); tries++ {
				if tries == 5 {
					t.Fatal("the chain did not begin")
				}
			}
		})
	}
}

// A strike hits the whole process group of a child, also what it does not know.
//
// guard:strike. Without this check: no cgroup can be made; each process of the command writes a line, starts the next one and
// ends; the watchdog reads the table of processes, and kills what stands there and has ended already; the lease ends, another
// machine leads, and the chain goes on to write.
func TestStrike(t *testing.T) {
	c := child(t, "/bin/sh", "-c", "sleep 600 & wait")
	var below process
	eventually(t, "the child has a child", func() bool {
		for _, p := range descendants(c.Process.Pid) {
			below = p
		}
		return below.pid != 0
	})
	defer kill([]process{below})
	strike([]int{c.Process.Pid})
	for _, pid := range []int{c.Process.Pid, below.pid} {
		eventually(t, "it is dead", func() bool { p, ok := look(pid); return !ok || p.dead() })
	}
}

// What is left of an exec that was killed with all its processes is removed later, and nothing else.
func TestClean(t *testing.T) {
	parent := cgroup(t.TempDir())
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	stays := []string{"other", "fencepost-exec-x", fmt.Sprintf("fencepost-exec-%d-1", os.Getpid())}
	for _, name := range append(stays, fmt.Sprintf("fencepost-exec-%d-1/2", dead.Process.Pid)) {
		if err := os.MkdirAll(filepath.Join(string(parent), name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	parent.clean()
	left, err := os.ReadDir(string(parent))
	if err != nil || len(left) != len(stays) {
		t.Errorf("left: %v, %v", left, err)
	}
}

// begins reports whether a process has a command line that begins so.
func begins(pid int, line string) bool {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return strings.HasPrefix(string(b), line)
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(4 * chainLife); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not so: " + what)
		}
	}
}
