package supervise

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

var (
	// ErrLost: the command was ended because the lease was lost, or was about to end.
	ErrLost = errors.New("the command was ended, because the lease is lost")
	// ErrWatchdog: the watchdog has died, so the command was killed.
	ErrWatchdog = errors.New("the watchdog process has died, so the command was killed")
	// ErrUnsupported: this system lacks what supervision needs.
	ErrUnsupported = errors.New("it needs Linux: elsewhere nothing can kill all that a command has started")
)

// Moment is a point of time: how long after the machine has booted, suspends included.
type Moment time.Duration

// Sub returns the time from u to m.
func (m Moment) Sub(u Moment) time.Duration { return time.Duration(m - u) }

// Add returns the moment d later.
func (m Moment) Add(d time.Duration) Moment { return m + Moment(d) }

// String is m in seconds, as /proc/uptime has it.
func (m Moment) String() string {
	return fmt.Sprintf("%d.%03d", m/Moment(time.Second), m/Moment(time.Millisecond)%1000)
}

// Command is what to run, and for how long.
type Command struct {
	Path string   // of the program
	Args []string // its name and its arguments
	Env  []string
	// NoInput gives the command an empty standard input, and not the terminal.
	NoInput bool
	// Watchdog is the program that calls [Watchdog], with the arguments before those that Run adds.
	Watchdog []string
	// Held is how long the lease still lasts. It is called often.
	Held func() time.Duration
	// Grace is how long before the deadline the command gets SIGTERM.
	Grace time.Duration
	// Bounded gives the command no more than Grace after it was told to end, for whatever reason.
	Bounded bool
	// Signals are passed on to the command.
	Signals <-chan syscall.Signal
	// Told, if set, is called when the command was told to end, for whatever reason.
	Told func()
	// Missed, if set, is told of each signal that came when the command had ended, but not yet all
	// that it has started.
	Missed func(syscall.Signal)
	// Renewed is called with the first deadline before the command is started, and with each new one
	// when the watchdog has confirmed it. It may be nil.
	Renewed func(deadline Moment)
}

// Status is how a command has ended.
type Status struct {
	Code   int            `json:"code"`
	Signal syscall.Signal `json:"signal,omitempty"` // that killed it; 0 if it exited
}

// Exit is the exit status that a shell would show: that of the command, or 128 and the number
// of the signal.
func (s Status) Exit() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Code
}

// StartError says why the command could not be started.
type StartError struct {
	Path string
	Err  syscall.Errno
}

func (e *StartError) Error() string { return fmt.Sprintf("cannot start %s: %v", e.Path, e.Err) }

func (e *StartError) Unwrap() error { return e.Err }

// order is what the supervisor tells the watchdog.
type order struct {
	Until  Moment         `json:"until,omitempty"` // the new deadline
	Grace  time.Duration  `json:"grace,omitempty"` // with the first order
	Signal syscall.Signal `json:"signal,omitempty"`
	Stop   bool           `json:"stop,omitempty"` // Signal ends the command
	Kill   bool           `json:"kill,omitempty"` // the deadline is now
}

// report is what the watchdog tells the supervisor.
type report struct {
	Until    Moment         `json:"until,omitempty"` // the deadline that it has confirmed
	Started  int            `json:"started,omitempty"`
	Failed   syscall.Errno  `json:"failed,omitempty"`   // to start
	Stopping bool           `json:"stopping,omitempty"` // the command was told to end
	Late     bool           `json:"late,omitempty"`     // because the deadline is near
	Paused   syscall.Signal `json:"paused,omitempty"`   // the command was stopped by its terminal
	Missed   syscall.Signal `json:"missed,omitempty"`   // a signal that came when the command had ended
	Exited   *Status        `json:"exited,omitempty"`   // and all that it has started is dead
}
