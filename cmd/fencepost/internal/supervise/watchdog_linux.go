package supervise

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// watchdog is the parent of the command. Its loop waits for nobody: not for the supervisor,
// not for the terminal, and not for the command.
type watchdog struct {
	in      *pipe
	orders  chan order
	reports chan report
	notes   chan string
	alarm   *alarm

	cgroup   cgroup
	noted    deadlines // for the survivor, if there is a cgroup
	number   int       // of the command there
	group    int       // of the command, and its number
	until    Moment
	grace    time.Duration
	status   *Status // of the command, once it has ended
	stopping bool
	killing  bool
	orphaned bool // the supervisor has died
}

// Watchdog starts a command and watches it. Args are those that [Run] has added. It returns
// when the command and all that it has started are dead.
func Watchdog(args []string) error {
	if len(args) == 2 && args[0] == survivor {
		survive(cgroup(args[1]))
		return nil
	}
	var fds []int // for orders and for reports. In a cgroup the third one shows the survivor that this process lives, and the fourth one the deadline
	for len(args) > 0 {
		fd, err := strconv.Atoi(args[0])
		if err != nil {
			break
		}
		syscall.CloseOnExec(fd)
		fds, args = append(fds, fd), args[1:]
	}
	if len(fds) < 2 || len(args) < 4 {
		return errors.New("the watchdog is started by fencepost exec, and not by hand")
	}
	if err := syscall.SetNonblock(fds[1], true); err != nil {
		return os.NewSyscallError("fcntl", err)
	}
	// The thread that starts the command must live as long as this process: when it ends, the
	// kernel kills the command.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := subreaper(); err != nil {
		return err
	}
	w := &watchdog{cgroup: cgroup(args[1]), in: newPipe(fds[0]), orders: make(chan order), reports: make(chan report, 64), notes: make(chan string, 16)}
	if len(fds) > 3 {
		w.noted.File = os.NewFile(uintptr(fds[3]), "deadlines")
		w.number, _ = strconv.Atoi(filepath.Base(string(w.cgroup)))
	}
	var err error
	if w.alarm, err = newAlarm(); err != nil {
		return err
	}
	defer w.alarm.close()
	told := make(chan struct{})
	go func() {
		defer close(told)
		w.tell(os.NewFile(uintptr(fds[1]), "reports"))
	}()
	go func() { // standard error may block
		for n := range w.notes {
			fmt.Fprintln(os.Stderr, "fencepost: "+n)
		}
	}()
	w.run(args[0] == foreground, args[2], args[3:])
	close(w.reports)
	<-told
	return nil
}

// listen receives orders until the supervisor has died.
func (w *watchdog) listen() {
	defer close(w.orders)
	for {
		o, ok := w.in.next()
		if !ok {
			return
		}
		w.orders <- o
	}
}

// pipe is where orders come from.
type pipe struct {
	*json.Decoder
	fd int
}

func newPipe(fd int) *pipe { return &pipe{json.NewDecoder(os.NewFile(uintptr(fd), "orders")), fd} }

// next waits for an order. It returns false if the supervisor has died.
func (p *pipe) next() (o order, ok bool) {
	err := p.Decode(&o)
	return o, err == nil
}

// waits reports whether next would return at once.
func (p *pipe) waits() bool {
	rest, _ := io.ReadAll(p.Buffered())
	if len(bytes.TrimSpace(rest)) > 0 {
		return true
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}

// tell sends reports. If the supervisor is frozen they are lost.
func (w *watchdog) tell(f *os.File) {
	for r := range w.reports {
		b, err := json.Marshal(r)
		if err == nil {
			_ = f.SetWriteDeadline(time.Now().Add(time.Second))
			_, _ = f.Write(append(b, '\n'))
		}
	}
}

func (w *watchdog) report(r report) {
	select {
	case w.reports <- r:
	default:
	}
}

func (w *watchdog) note(format string, args ...any) {
	select {
	case w.notes <- fmt.Sprintf(format, args...):
	default:
	}
}

// handled makes this process survive all signals, and returns those of children. Unlike
// ignored ones, handled signals have their default effect in the command. What was ignored
// when fencepost was started stays ignored in the command: see nohup(1).
func handled() <-chan os.Signal {
	all, children := make(chan os.Signal, 1), make(chan os.Signal, 1)
	for s := syscall.Signal(1); s < 65; s++ {
		if s != syscall.SIGCHLD && (s == syscall.SIGPIPE || !signal.Ignored(s)) {
			signal.Notify(all, s)
		}
	}
	signal.Notify(children, syscall.SIGCHLD)
	return children
}

func (w *watchdog) run(onTerminal bool, path string, argv []string) {
	children := handled()
	if !w.start(onTerminal, path, argv) {
		return
	}
	go w.listen()
	orders := w.orders
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				orders, w.orphaned = nil, true
				w.note("fencepost exec has died; ending the command")
				w.stop(syscall.SIGTERM)
				break
			}
			w.obey(o)
		case <-w.alarm.Fired:
		case <-children:
		}
		if w.step(Now()) {
			return
		}
	}
}

// early reads the orders that come before the command is started: the first one, and those that
// wait after it. End is how the command has ended if it must not start. A watchdog that is slow to
// begin would otherwise start a command although its end is known.
func (w *watchdog) early() (signals []syscall.Signal, end *Status, ok bool) {
	for {
		o, ok := w.in.next()
		switch {
		case !ok:
			return signals, nil, false
		case o.Kill:
			return signals, &Status{Signal: syscall.SIGKILL}, true
		case o.Stop:
			return signals, &Status{Signal: o.Signal}, true
		case o.Signal != 0:
			signals = append(signals, o.Signal)
		}
		w.until, w.grace = max(w.until, o.Until), max(w.grace, o.Grace)
		if !w.in.waits() {
			return signals, nil, true
		}
	}
}

// start starts the command as soon as there is a deadline, unless it must end already.
func (w *watchdog) start(onTerminal bool, path string, argv []string) bool {
	signals, end, ok := w.early()
	if !ok {
		return false
	}
	late := end == nil && Now() >= w.until.Add(-w.grace)
	if late {
		end = &Status{Signal: syscall.SIGKILL}
	}
	if end != nil {
		for _, s := range signals {
			w.report(report{Missed: s})
		}
		w.report(report{Late: late, Exited: end})
		return false
	}
	if !w.promise(w.until) {
		w.report(report{Failed: syscall.EIO})
		return false
	}
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if onTerminal {
		// Of the terminal at Ctty, which is standard input. The child blocks all signals until it has
		// that. So SIGTTOU need not be ignored here, which the command would inherit.
		attr.Foreground = true
	}
	pid, err := w.inCgroup(func() (int, error) {
		return syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: attr})
	})
	if err != nil {
		failed, _ := errors.AsType[syscall.Errno](err)
		w.report(report{Failed: max(failed, 1)})
		return false
	}
	w.group = pid
	w.report(report{Started: pid, Until: w.until})
	w.alarm.set(w.until.Add(-w.grace))
	for _, s := range signals {
		w.obey(order{Signal: s})
	}
	return true
}

// inCgroup starts a process in the command's cgroup. This one is there meanwhile: a filter of system calls, as systemd
// sets it, often forbids the call that starts a process elsewhere.
func (w *watchdog) inCgroup(start func() (int, error)) (int, error) {
	if w.cgroup == "" || w.cgroup.enter() != nil {
		return start()
	}
	defer func() { _ = cgroup(filepath.Dir(filepath.Dir(string(w.cgroup)))).enter() }()
	return start()
}

// promise tells the survivor a deadline, before anybody relies on it.
func (w *watchdog) promise(until Moment) bool {
	return w.noted.File == nil || w.noted.note(w.number, until) == nil
}

func (w *watchdog) obey(o order) {
	switch {
	case o.Kill:
		w.until, w.killing = 0, true
	case o.Stop:
		w.stop(o.Signal)
	case o.Signal != 0 && w.status == nil:
		_ = syscall.Kill(-w.group, o.Signal)
	case o.Signal != 0:
		w.report(report{Missed: o.Signal})
	}
	// guard:no-late-extension. Once the watchdog of fencepost exec has begun to kill the command, it
	// accepts no later deadline. Without this check: the deadline passes; the watchdog kills the
	// command, which forks a child at this moment; a delayed order with a later deadline arrives; the
	// watchdog waits for that deadline, and the child runs on.
	//
	//mutant:replace !w.killing && w.status == nil => true
	if o.Until > w.until && !w.killing && w.status == nil && w.promise(o.Until) {
		w.until = o.Until
		w.report(report{Until: w.until})
	}
}

// stop tells the command to end, once.
func (w *watchdog) stop(s syscall.Signal) {
	if w.stopping {
		return
	}
	w.stopping = true
	w.report(report{Stopping: true})
	if w.status == nil {
		_ = syscall.Kill(-w.group, s)
		_ = syscall.Kill(-w.group, syscall.SIGCONT) // a stopped process does not see the signal
	}
}

// step does what is due, and reports whether everything is dead.
func (w *watchdog) step(now Moment) (done bool) {
	if none := reap(w.died); none {
		w.report(report{Exited: w.status})
		return true
	}
	switch {
	case now >= w.until:
		w.killing = true
		if w.status == nil {
			_ = syscall.Kill(-w.group, syscall.SIGKILL)
		}
		w.cgroup.kill()
		for n := 0; n < burst; n++ {
			strike(children())
			if reap(w.died) {
				break
			}
		}
		// What forks while it is killed is found the next time.
		kill(descendants(os.Getpid()))
		w.alarm.set(now.Add(beat))
		return false
	case !w.stopping && now >= w.until.Add(-w.grace):
		w.report(report{Late: true})
		w.stop(syscall.SIGTERM)
	}
	if w.stopping {
		w.alarm.set(w.until)
	} else {
		w.alarm.set(w.until.Add(-w.grace))
	}
	return false
}

// died takes note of a child that has ended or was stopped. When the command itself has ended,
// what it has left behind must end too, before another process leads.
func (w *watchdog) died(pid int, s syscall.WaitStatus) {
	switch {
	case pid != w.group:
	case s.Stopped():
		w.report(report{Paused: s.StopSignal()})
	case s.Exited(), s.Signaled():
		w.status = &Status{Code: s.ExitStatus()}
		if s.Signaled() {
			w.status = &Status{Signal: s.Signal()}
		}
		w.stopping = true
		w.until = min(w.until, Now().Add(w.grace))
		for _, p := range descendants(os.Getpid()) {
			p.send(syscall.SIGTERM, syscall.SIGCONT)
		}
	}
}
