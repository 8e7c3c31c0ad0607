package supervise

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a directory of the kernel's second version of control groups; empty where none could be made. Whatever is
// started in one stays in it, and the kernel kills all of it in one step.
type cgroup string

// kill kills what is in it, and in those below.
func (c cgroup) kill() {
	if c != "" {
		_ = os.WriteFile(filepath.Join(string(c), "cgroup.kill"), []byte("1"), 0)
	}
}

// enter moves this process into it. What it starts begins there.
func (c cgroup) enter() error {
	return os.WriteFile(filepath.Join(string(c), "cgroup.procs"), []byte("0"), 0)
}

// live reports whether a process in it, or in one below, lives.
func (c cgroup) live() bool {
	b, _ := os.ReadFile(filepath.Join(string(c), "cgroup.events"))
	return bytes.Contains(b, []byte("populated 1"))
}

// remove removes it, and those below that a command has made. All must be empty.
func (c cgroup) remove() {
	if c == "" {
		return
	}
	below, _ := os.ReadDir(string(c))
	for _, e := range below {
		if e.IsDir() {
			cgroup(filepath.Join(string(c), e.Name())).remove()
		}
	}
	_ = syscall.Rmdir(string(c))
}

// own is the group in which this process is. Tests replace it.
var own = func() cgroup {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	paths, _ := os.ReadFile("/proc/self/cgroup")
	_, path, ok := strings.Cut("\n"+string(paths), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	for line := range strings.Lines(string(mounts)) {
		// The ID of the mount and its parent's, a device, the root of the mount, and where it is: see proc(5).
		f := strings.Fields(line)
		if !ok || len(f) < 5 || !strings.Contains(line, " - cgroup2 ") {
			continue
		}
		if rel, err := filepath.Rel(f[3], path); err == nil && filepath.IsLocal(rel) {
			return cgroup(filepath.Join(f[4], rel))
		}
	}
	return ""
}

// cage is where the cgroups of this process's commands are. Another process, the survivor, kills what has outlived its deadline
// there, and all that is left when this process and all its watchdogs have died.
type cage struct {
	dir       cgroup
	lives     *os.File  // all guardians have it open, and none of the commands
	deadlines deadlines // of all commands
	n         int
}

// deadlines is a file in memory where each watchdog notes the deadline of its command.
type deadlines struct{ *os.File }

// at returns the deadline of a command; 0 if it has not begun.
func (d deadlines) at(n int) Moment {
	var b [8]byte
	_, _ = d.ReadAt(b[:], int64(n)*8)
	return Moment(binary.NativeEndian.Uint64(b[:]))
}

// note sets the deadline of a command.
func (d deadlines) note(n int, until Moment) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(until)) //nolint:gosec // it is the same again when it is read
	_, err := d.WriteAt(b[:], int64(n)*8)
	return err
}

// cages is nil before the first command of this process.
var cages *cage

// newCgroup makes the cgroup of a command, where this process may, and returns the files for its watchdog. The caller has the lock
// of watchdogs.
func newCgroup(watchdog []string) (c cgroup, theirs []*os.File) {
	if cages == nil {
		cages = &cage{}
		cages.build(watchdog)
	}
	if cages.dir == "" {
		return "", nil
	}
	cages.n++
	c = cgroup(filepath.Join(string(cages.dir), strconv.Itoa(cages.n)))
	if os.Mkdir(string(c), 0o755) != nil {
		return "", nil
	}
	return c, []*os.File{cages.lives, cages.deadlines.File}
}

// build makes the directory and starts the survivor. If it cannot, there is no cage.
func (g *cage) build(watchdog []string) {
	parent := own()
	if parent == "" {
		return
	}
	dir, err := os.MkdirTemp(string(parent), fmt.Sprintf("%s%d-", cagePrefix, os.Getpid()))
	if err != nil {
		return
	}
	parent.clean()
	_, err = os.Stat(filepath.Join(dir, "cgroup.kill")) // Linux 5.14
	if err == nil {
		err = g.survive(watchdog, dir)
	}
	if err != nil {
		cgroup(dir).remove()
		return
	}
	g.dir = cgroup(dir)
}

// cagePrefix and the number of the process begin the name of a cage.
const cagePrefix = "fencepost-exec-"

// clean removes the cages here whose process has died together with its watchdogs and its survivor. The kernel removes only what
// is empty.
func (c cgroup) clean() {
	entries, _ := os.ReadDir(string(c))
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), cagePrefix)
		number, _, _ := strings.Cut(rest, "-")
		if pid, err := strconv.Atoi(number); ok && err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			cgroup(filepath.Join(string(c), e.Name())).remove()
		}
	}
}

// survive starts the survivor: in a session of its own, and with nothing open that others wait for.
func (g *cage) survive(watchdog []string, dir string) error {
	ends, lives, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ends.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return errors.Join(err, lives.Close())
	}
	defer null.Close()
	memory, err := unix.MemfdCreate("deadlines", unix.MFD_CLOEXEC)
	if err != nil {
		return errors.Join(err, lives.Close())
	}
	noted := deadlines{os.NewFile(uintptr(memory), "deadlines")}
	argv := append(append([]string{}, watchdog...), survivor, dir)
	pid, err := syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Dir: "/", Env: os.Environ(), Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), ends.Fd(), noted.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return errors.Join(err, lives.Close(), noted.Close())
	}
	watchdogs.live[pid] = true
	g.lives, g.deadlines = lives, noted
	return nil
}

// survivor is the first argument of a watchdog that is the survivor.
const survivor = "survivor"

// survive kills what outlives its deadline in dir, until nobody holds the other end of file 3 any more, and then all. File 4 has the
// deadlines.
func survive(dir cgroup) {
	handled()
	gone, noted := make(chan struct{}), deadlines{os.NewFile(4, "deadlines")}
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, os.NewFile(3, "guardians"))
	}()
	for wait := beat; ; {
		select {
		case <-time.After(wait):
			wait = dir.patrol(noted)
			continue
		case <-gone:
		}
		for dir.live() {
			dir.kill()
			time.Sleep(beat)
		}
		dir.remove()
		return
	}
}

// patrol kills the commands whose deadline has passed. Wait is how long none of the others is due.
//
// guard:survivor. A command in a cgroup is killed at the deadline that its watchdog has confirmed, whatever its guardians do.
//
//mutant:replace case left <= 0 && => case false &&
func (c cgroup) patrol(noted deadlines) (wait time.Duration) {
	wait = 250 * time.Millisecond
	entries, _ := os.ReadDir(string(c))
	for _, e := range entries {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		command, until := cgroup(filepath.Join(string(c), e.Name())), noted.at(n)
		switch left := until.Sub(Now()); {
		case until == 0 || left > wait:
		case left > 0:
			wait = left
		case left <= 0 && noted.at(n) == until && command.live():
			command.kill()
			wait = beat
		}
	}
	return max(wait, beat)
}

// children returns the children of this process. While they change it may miss some.
func children() (pids []int) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		b, _ := os.ReadFile("/proc/self/task/" + t.Name() + "/children")
		for _, f := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// strike stops and then kills children of this process, each with its process group. All are stopped before the first one
// dies, since others may start again what has died.
//
// It reads no table of processes. In a chain, where each process starts the next one and ends, a process that is found in a
// table has often ended before the signal comes. A group gets its signal in one step, and no fork gets away.
//
// A child that is not reaped keeps its number and its group's, so no other process is hit.
func strike(pids []int) {
	groups := map[int]bool{}
	for _, pid := range pids {
		if group, err := unix.Getpgid(pid); err == nil && group > 1 && group != syscall.Getpgrp() {
			groups[group] = true
		}
	}
	// guard:strike. Exec and its watchdog kill their children as soon as they are seen, each with its whole process group.
	//mutant:replace []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} => []syscall.Signal{}
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for group := range groups {
			_ = syscall.Kill(-group, s)
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, s)
		}
	}
}

// burst is how often in succession a strike is made while there are children.
const burst = 100
