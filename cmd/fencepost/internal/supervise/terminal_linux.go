package supervise

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// onTerminal reports whether standard input is a terminal on which this process runs in the
// foreground. Then the command must be there.
func onTerminal() bool {
	if !term.IsTerminal(0) {
		return false
	}
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	return err == nil && group == syscall.Getpgrp()
}

// setTerminal makes a process group that in the foreground.
func setTerminal(group int) {
	ignoreTTOU(func() { _ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group) })
}

// takeTerminal takes the terminal back, unless somebody else has it already. The command may have given
// it to a group that is dead now, as a shell gives it to its jobs.
func (s *supervisor) takeTerminal() {
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	if err == nil && (group == s.group || group > 0 && errors.Is(syscall.Kill(-group, 0), syscall.ESRCH)) {
		setTerminal(syscall.Getpgrp())
	}
}

// orphaned reports whether no shell can continue this process's group once it is stopped: no member has
// a parent in another group of the session. So it is in a container, and after ssh -t HOST COMMAND.
func orphaned() bool {
	mine := syscall.Getpgrp()
	session, err := unix.Getsid(0)
	for _, p := range processes() {
		if err != nil || p.group != mine || p.parent <= 0 {
			continue
		}
		group, err := unix.Getpgid(p.parent)
		of, err2 := unix.Getsid(p.parent)
		if err == nil && err2 == nil && group != mine && of == session {
			return false
		}
	}
	return true
}

// suspend stops this process, as its terminal has stopped the command, and both go on
// together. Meanwhile nobody renews the lease, so the watchdog may end the command.
func (s *supervisor) suspend(paused syscall.Signal) {
	// Nobody would continue this process, or it cannot be stopped, as the first one of a container. The
	// kernel ignores Ctrl-Z for such a program, and so does this for the command.
	if orphaned() {
		if paused == syscall.SIGTSTP {
			s.order(order{Signal: syscall.SIGCONT})
		}
		return
	}
	s.takeTerminal()
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGSTOP) // the whole job, as a shell expects
	// Another thread may take the signal, and then this one runs for a moment yet.
	<-continued
	if group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP); err == nil && group == syscall.Getpgrp() {
		setTerminal(s.group)
	}
	s.order(order{Signal: syscall.SIGCONT})
}

// ignoreTTOU calls f, which sets the terminal's group from the background.
func ignoreTTOU(f func()) {
	was := signal.Ignored(syscall.SIGTTOU)
	signal.Ignore(syscall.SIGTTOU)
	f()
	if !was {
		signal.Reset(syscall.SIGTTOU)
	}
}
