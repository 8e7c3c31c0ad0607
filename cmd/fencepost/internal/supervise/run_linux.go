package supervise

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// foreground and background tell the watchdog whether the command gets the terminal.
const foreground, background = "foreground", "background"

// supervisor is what holds the lease.
type supervisor struct {
	*Command
	watchdog  int // its process
	orders    *os.File
	reports   <-chan report
	signals   <-chan syscall.Signal
	tty       bool
	group     int    // of the command; 0 before it has started
	offered   Moment // the last deadline that the watchdog was told
	confirmed Moment // the last one that it has confirmed; at first the one that it begins with
	asked     Moment // when the command should have been told to end; 0: it should go on
	stopping  bool   // the watchdog has told it
	forced    bool   // this process has told it
	lost      bool
	forces    int     // how often the watchdog was told to kill
	cgroup    cgroup  // of the command
	unsent    []order // orders that could not be written yet
}

// Run runs a command until it ends, ctx ends, or the lease does, and returns when it and all
// that it has started are dead. If ctx ends, the command gets SIGTERM, and may go on to the
// deadline.
//
// If ctx ends before the command has started, none is started. The status is then that of a command
// that SIGTERM has killed.
//
// The error is nil if the command has ended by itself or because ctx has ended. It is
// [ErrLost] if the lease was about to end, [ErrWatchdog], a [StartError], or an error of the
// system.
func Run(ctx context.Context, c *Command) (Status, error) {
	if err := subreaper(); err != nil {
		return Status{}, err
	}
	s := &supervisor{Command: c, signals: c.Signals, tty: !c.NoInput && onTerminal()}
	switch holds := s.look(); {
	case ctx.Err() != nil:
		return Status{Signal: syscall.SIGTERM}, nil
	case !holds || s.offered.Sub(Now()) <= c.Grace:
		return Status{}, ErrLost
	}
	if err := s.start(ctx); err != nil {
		return Status{}, err
	}
	defer s.orders.Close()
	status, err := s.loop(ctx)
	if s.tty {
		s.takeTerminal()
	}
	// It has nothing left to do. It is a child of this process and not reaped yet.
	_ = syscall.Kill(s.watchdog, syscall.SIGKILL)
	s.forget()
	_, _ = syscall.Wait4(s.watchdog, nil, 0, nil)
	s.cgroup.remove()
	for range s.reports { // until it is closed
	}
	return status, err
}

// start starts the watchdog, in a process group of its own, so that what stops this one does
// not stop it.
func (s *supervisor) start(ctx context.Context) error {
	theirs, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirs.Close()
	reports, mine, err := os.Pipe()
	if err != nil {
		_ = orders.Close()
		return err
	}
	defer mine.Close()
	if err := s.fork(theirs, mine); err != nil {
		_ = orders.Close()
		_ = reports.Close()
		return os.NewSyscallError("starting the watchdog", err)
	}
	s.orders = orders
	ch := make(chan report)
	s.reports = ch
	go func() {
		defer close(ch)
		defer reports.Close()
		for d := json.NewDecoder(reports); ; {
			var r report
			if d.Decode(&r) != nil {
				return
			}
			ch <- r
		}
	}()
	s.confirmed = s.offered
	if s.Renewed != nil { // before the order: the watchdog starts the command when it reads it
		s.Renewed(s.confirmed)
	}
	if ctx.Err() != nil {
		s.stop() // instead: so the watchdog starts nothing
		return nil
	}
	s.order(order{Until: s.offered, Grace: s.Grace})
	return nil
}

// watchdogs are those of this process that are alive. Each of them kills its own command, and nobody
// else does.
var watchdogs = struct {
	sync.Mutex
	live map[int]bool
}{live: map[int]bool{}}

// fork starts the watchdog, and notes it before anybody can take it for an orphan.
func (s *supervisor) fork(in, out *os.File) (err error) {
	watchdogs.Lock()
	defer watchdogs.Unlock()
	theirs := []uintptr{in.Fd(), out.Fd()}
	var more []*os.File
	s.cgroup, more = newCgroup(s.Watchdog)
	for _, f := range more {
		theirs = append(theirs, f.Fd())
	}
	where := background
	if s.tty {
		where = foreground
	}
	argv := append([]string{}, s.Watchdog...)
	for _, fd := range theirs {
		argv = append(argv, strconv.Itoa(int(fd)))
	}
	argv = append(append(argv, where, string(s.cgroup), s.Path), s.Args...)
	files := inherited(theirs...)
	if s.NoInput {
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer null.Close()
		files[0] = null.Fd()
	}
	s.watchdog, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
		Env: s.Env, Files: files, Sys: &syscall.SysProcAttr{Setpgid: true},
	})
	if err == nil {
		watchdogs.live[s.watchdog] = true
	}
	return err
}

// forget is called when the watchdog has died, before its number can be used again.
func (s *supervisor) forget() {
	watchdogs.Lock()
	defer watchdogs.Unlock()
	delete(watchdogs.live, s.watchdog)
}

// inherited are the files for a child: those that this process was started with, and some more.
func inherited(more ...uintptr) []uintptr {
	files := make([]uintptr, slices.Max(more)+1)
	for fd := range files {
		files[fd] = uintptr(fd)
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if keep := slices.Contains(more, uintptr(fd)); !keep && (err != nil || flags&unix.FD_CLOEXEC != 0) {
			files[fd] = ^uintptr(0)
		}
	}
	return files
}

// look reads the lease, and reports whether it holds.
//
// The clock is read before the lease: after a pause between the two the deadline is too early,
// and never too late.
func (s *supervisor) look() bool {
	now := Now()
	held := s.Held()
	if until := now.Add(held); until > s.offered.Add(time.Millisecond) {
		s.offered = until
	}
	return held > 0
}

// order tells the watchdog something. A frozen one does not read it: then it confirms nothing.
//
// What cannot be written now is written later, and in order. The watchdog starts the command at the first order that
// is not to stop it. So if an order to stop were lost, and a deadline followed, a command would start that must not.
func (s *supervisor) order(o order) {
	switch last := len(s.unsent) - 1; {
	case last >= 0 && o.Signal == 0 && s.unsent[last].Signal == 0: // deadlines, or one that kills
		s.unsent[last].Until, s.unsent[last].Kill = max(o.Until, s.unsent[last].Until), o.Kill || s.unsent[last].Kill
	case len(s.unsent) < maxUnsent || o.Signal == 0 || o.Stop: // only signals that are passed on may be lost
		s.unsent = append(s.unsent, o)
	}
	s.resend()
}

// maxUnsent bounds the signals that wait for a watchdog that is frozen.
const maxUnsent = 64

func (s *supervisor) resend() {
	for len(s.unsent) > 0 {
		b, err := json.Marshal(s.unsent[0])
		if err == nil {
			_ = s.orders.SetWriteDeadline(time.Now().Add(beat))
			_, err = s.orders.Write(append(b, '\n')) // it is small enough to be written whole or not at all
		}
		if err != nil {
			return
		}
		s.unsent = s.unsent[1:]
	}
}

func (s *supervisor) loop(ctx context.Context) (Status, error) {
	tick := time.NewTicker(max(min(s.Grace/16, 250*time.Millisecond), beat))
	defer tick.Stop()
	ended := ctx.Done()
	for {
		select {
		case r, ok := <-s.reports:
			switch {
			case !ok:
				_ = syscall.Kill(s.watchdog, syscall.SIGKILL) // if it lives, it is of no use
				s.clear(s.orphans)
				if s.forces > 0 { // it was too slow
					return Status{Signal: syscall.SIGKILL}, s.verdict(nil)
				}
				return Status{Signal: syscall.SIGKILL}, s.verdict(ErrWatchdog)
			case r.Failed != 0:
				return Status{}, &StartError{Path: s.Path, Err: r.Failed}
			}
			s.heed(r)
			if r.Exited != nil {
				return *r.Exited, s.verdict(nil)
			}
		case sig := <-s.signals:
			s.order(order{Signal: sig})
		case <-ended:
			ended = nil
			s.stop()
		case <-tick.C:
		}
		if s.step(); s.forces == 1 {
			tick.Reset(beat)
		}
	}
}

func (s *supervisor) verdict(err error) error {
	if s.lost {
		return ErrLost
	}
	return err
}

// heed takes note of a report.
func (s *supervisor) heed(r report) {
	if r.Started != 0 {
		s.group = r.Started
	}
	if r.Stopping && !s.stopping {
		s.stopping = true
		if s.Told != nil {
			s.Told()
		}
	}
	s.lost = s.lost || r.Late
	if r.Missed != 0 && s.Missed != nil {
		s.Missed(r.Missed)
	}
	if r.Until != 0 && r.Until >= s.confirmed {
		s.confirmed = r.Until
		if s.Renewed != nil {
			s.Renewed(s.confirmed)
		}
	}
	if s.tty && (r.Paused == syscall.SIGTSTP || r.Paused == syscall.SIGTTIN || r.Paused == syscall.SIGTTOU) {
		s.suspend(r.Paused)
	}
}

// stop tells the command to end.
func (s *supervisor) stop() {
	if s.asked == 0 {
		s.asked = Now()
		s.order(order{Signal: syscall.SIGTERM, Stop: true})
	}
}

// step does what is due.
//
// guard:confirmed-deadline. Of fencepost exec, the supervisor holds the lease; the watchdog,
// another process, kills the command at a deadline, even if the supervisor is dead. The command
// runs only until the deadline that the watchdog has confirmed, even if the lease holds for longer.
// Without this check: the watchdog is frozen; the supervisor renews the lease for an hour, and the
// command runs; the supervisor is killed; nobody ends the command, and another process gets the
// lease.
//
//mutant:replace s.confirmed.Sub(now) => s.offered.Sub(now)
func (s *supervisor) step() {
	before := s.offered
	holds := s.look()
	if s.resend(); s.offered > before {
		s.order(order{Until: s.offered})
	}
	now := Now()
	left := s.confirmed.Sub(now)
	switch {
	case !holds || left <= 0:
		s.lost = true
		s.force(now)
	case s.Bounded && s.asked != 0 && now.Sub(s.asked) >= s.Grace:
		s.force(now)
	case left <= s.Grace && s.asked == 0:
		s.lost = true
		s.stop()
	}
	// The watchdog does not answer: it is frozen. So it has not reaped the command, whose number is still that of its group.
	if s.asked != 0 && !s.stopping && !s.forced && s.group != 0 && now.Sub(s.asked) > s.Grace/4 {
		s.forced = true
		if p, ok := look(s.group); ok && p.parent == s.watchdog && p.group == s.group {
			_ = syscall.Kill(-s.group, syscall.SIGTERM)
			_ = syscall.Kill(-s.group, syscall.SIGCONT)
		}
	}
}

// force kills what is in the command's cgroup, and lets the watchdog kill all. A watchdog that has not done so in a moment
// is frozen, and is killed: the command dies with it, and what else it leaves becomes this process's own, see clear.
func (s *supervisor) force(now Moment) {
	if s.asked == 0 {
		s.asked = now
	}
	s.cgroup.kill()
	s.order(order{Kill: true})
	s.forces++
	// guard:frozen-watchdog. A watchdog that has not killed the command soon after the deadline is killed.
	if s.forces > 10 {
		_ = syscall.Kill(s.watchdog, syscall.SIGKILL) // it is a child of this process and not reaped yet
	}
	if s.forces > 20 { // it hangs in the kernel
		kill(descendants(s.watchdog))
	}
}

// clear kills what is left when the watchdog has died, until find finds nothing any more.
func (s *supervisor) clear(find func() []process) {
	for {
		s.cgroup.kill()
		for n := 0; n < burst && s.strike(); n++ {
		}
		found := find()
		if len(found) == 0 {
			return
		}
		kill(found)
		time.Sleep(beat)
	}
}

// strike kills and reaps those children of this process that it has not started, and reports whether there were any.
func (s *supervisor) strike() bool {
	watchdogs.Lock()
	defer watchdogs.Unlock()
	strangers := slices.DeleteFunc(children(), func(pid int) bool {
		group, err := unix.Getpgid(pid)
		return err != nil || group == syscall.Getpgrp() || watchdogs.live[pid]
	})
	strike(strangers)
	for _, pid := range strangers {
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
	return len(strangers) > 0
}

// orphans are what the command has left when its watchdog has died: then the kernel makes
// this process their parent. Programs that this process itself has started are in its own
// process group.
//
// The table is not read in one moment. An orphan that lives when the reading begins may start another
// process, which is not in the table yet, and die before its own line is read. So a dead orphan is a
// reason to look again. A later reading that shows neither a live nor a dead one has missed none.
func (s *supervisor) orphans() (found []process) {
	watchdogs.Lock()
	defer watchdogs.Unlock()
	self, mine := os.Getpid(), syscall.Getpgrp()
	spared := map[int]bool{}
	for _, p := range descendants(self) { // parents come before their children
		switch {
		// A dying process closes its files before its children get another parent. So what is still
		// the watchdog's child is an orphan as well.
		case p.pid == s.watchdog:
		case spared[p.parent], watchdogs.live[p.pid]:
			spared[p.pid] = true
		case p.group == mine:
		case !p.dead():
			found = append(found, p)
		case p.parent == self:
			_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
			found = append(found, p)
		case p.parent == s.watchdog: // soon this process is its parent
			found = append(found, p)
		}
	}
	return found
}
