package supervise

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the present moment.
func Now() Moment {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("supervise: CLOCK_BOOTTIME: " + err.Error()) // Linux has had this clock since 2.6.39
	}
	return Moment(ts.Nano())
}

// process is one line of the kernel's table of processes.
type process struct {
	pid, parent, group int
	state              byte
	threads            int
	began              uint64 // so that a later process of the same number is told apart
}

// dead reports whether p only waits for its parent to take note. If only its first thread has ended, it
// has the same state, and lives.
func (p process) dead() bool { return p.threads <= 1 && (p.state == 'Z' || p.state == 'X') }

// look reads a process.
func look(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name stands in parentheses, and may have such itself.
	_, after, _ := strings.Cut(string(b[max(bytes.LastIndexByte(b, ')'), 0):]), " ")
	f := strings.Fields(after)
	if len(f) < 20 {
		return process{}, false
	}
	p := process{pid: pid, state: f[0][0]}
	p.parent, _ = strconv.Atoi(f[1])
	p.group, _ = strconv.Atoi(f[2])
	p.threads, _ = strconv.Atoi(f[17])
	p.began, _ = strconv.ParseUint(f[19], 10, 64)
	return p, true
}

// processes reads the whole table.
func processes() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []process
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			if p, ok := look(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// descendants returns what descends from a process, the dead included.
func descendants(root int) []process {
	if root <= 0 {
		return nil // 0 is the parent of all
	}
	children := map[int][]process{}
	for _, p := range processes() {
		children[p.parent] = append(children[p.parent], p)
	}
	found := slices.Clone(children[root])
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found
}

// send sends signals to p, and to no later process that has its number.
func (p process) send(signals ...syscall.Signal) {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return
	}
	defer func() { _ = handle.Release() }()
	// The handle is that of one process for good. It is the right one if the process still is
	// who it was.
	if now, ok := look(p.pid); !ok || now.began != p.began {
		return
	}
	for _, s := range signals {
		_ = handle.Signal(s)
	}
}

// kill kills the live ones. All are stopped before the first one dies, since others may start again what has died.
func kill(ps []process) {
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for _, p := range ps {
			if !p.dead() {
				p.send(s)
			}
		}
	}
}

// reap takes note of the death of all children that have died. With none left it says so.
func reap(died func(pid int, s syscall.WaitStatus)) (none bool) {
	for {
		var s syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &s, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return true
		case pid == 0:
			return false
		default:
			died(pid, s)
		}
	}
}

// alarm is a timer that counts suspends: it fires as soon as the machine is awake.
type alarm struct {
	f     *os.File
	Fired chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	a := &alarm{f: os.NewFile(uintptr(fd), "timer"), Fired: make(chan struct{}, 1)}
	go func() {
		var b [8]byte
		for {
			if _, err := a.f.Read(b[:]); err != nil {
				return // closed
			}
			select {
			case a.Fired <- struct{}{}:
			default:
			}
		}
	}()
	return a, nil
}

// set makes it fire at a moment, at once if that has passed.
func (a *alarm) set(at Moment) {
	raw, err := a.f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(at), 1))}
		_ = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	})
}

func (a *alarm) close() { _ = a.f.Close() }

// subreaper makes this process the parent of orphans among its descendants.
func subreaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// beat is how often something is tried again that should have happened already.
const beat = 5 * time.Millisecond
