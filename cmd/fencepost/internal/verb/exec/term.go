package exec

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
)

// running is one term of exec, with the wait for it.
type running struct {
	*execution
	end  context.CancelCauseFunc // ends the wait or, in good order, the term
	done <-chan struct{}         // closed by end
	hard chan struct{}           // closed: the command is told to end now
	seen fence.Epoch             // the last one, when the wait began

	mu      sync.Mutex
	leads   bool
	ending  bool                  // a signal was received after which no other command begins
	term    terminations          // of SIGTERM
	told    bool                  // the command that runs was told to end
	forward chan<- syscall.Signal // to the command; nil while there is none
	code    error                 // how the last command has ended
}

// terminations counts signals that end a process. Terminals and timeout(1) send copies of the first one
// within a moment, which do not count.
type terminations struct {
	n     int
	first clock.Instant
}

// add returns which one this is, from 1 on; 0 for a copy of the first.
func (t *terminations) add() int {
	now := clock.System().Now()
	switch {
	case t.n == 0:
		t.first = now
	case now.Sub(t.first) <= time.Second:
		return 0
	}
	t.n++
	return t.n
}

// receive passes a signal on.
func (r *running) receive(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s == syscall.SIGTERM && r.leads {
		switch n := r.term.add(); {
		case n == 0:
			return
		case n == 1:
			// In good order: a candidate that waits comes close first.
			r.stop(s)
		case !r.told:
			r.told = true
			close(r.hard)
			return
		}
		if !r.told {
			return
		}
	}
	switch {
	case r.forward != nil:
		r.ending = r.ending || s == syscall.SIGINT || s == syscall.SIGQUIT
		select {
		case r.forward <- s:
		default: // it does not take them
		}
	case fatal(s): // there is no command, and there must be none
		r.stop(s)
	}
}

// missed takes a signal that came when the command had ended, but not yet all that it has started.
func (r *running) missed(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fatal(s) {
		r.stop(s)
	}
}

// wasTold takes note that the command was told to end, as it also is when its deadline is near.
func (r *running) wasTold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = true
}

// stop ends the wait or, in good order, the term. The caller has r.mu.
func (r *running) stop(s syscall.Signal) {
	r.ending = true
	r.end(&kit.InterruptedError{Signal: s})
}

// fatal reports whether a signal ends a process that does not expect it, and a user means that.
func fatal(s syscall.Signal) bool {
	return s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT || s == syscall.SIGHUP
}

// giveUp ends the wait for the lead.
func (r *running) giveUp(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.leads {
		r.ending = true
		r.end(why)
	}
}

// met says for which leader this process waits, or gives up.
func (r *running) met(rec leader.Record, self string) {
	if rec.Holder != self && r.noWait && rec.Epoch > r.seen && rec.Leads() {
		r.giveUp(busy(rec))
		return
	}
	r.Meets(rec, self)
}

// work runs the command once.
func (r *running) work(ctx context.Context, t *leader.Term) error {
	r.mu.Lock()
	r.leads = true
	r.mu.Unlock()
	signals := make(chan syscall.Signal, 16)
	if !r.begin(signals) { // a signal, or the end of --wait, came before there was a command
		return nil
	}
	status, err := r.once(ctx, t, newDeadlines(filepath.Join(r.dir, "deadline")), signals)
	if lost := lostLead(ctx); lost != nil {
		err = lost
	}
	if err != nil {
		r.finish(err)
		return err
	}
	r.finish(kit.CodeError(status.Exit()))
	if r.restart && ctx.Err() == nil && byHand(status) {
		r.Console.Note("the command ended with status %d, which a user or a terminal has caused; it is not started again", status.Exit())
		r.mu.Lock()
		r.ending = true
		r.mu.Unlock()
	}
	return nil
}

// byHand reports whether a command has died of a signal with which people and terminals end programs. Such a
// command is not started again. A shell in which one has died of Ctrl-C or Ctrl-\ says so by its exit status.
func byHand(s supervise.Status) bool {
	switch s.Signal {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT:
		return true
	}
	return s.Code == 128+int(syscall.SIGINT) || s.Code == 128+int(syscall.SIGQUIT)
}

// lostLead is the error of a term that was lost, or nil.
func lostLead(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, leader.ErrLost) && !errors.Is(cause, leader.ErrResigned) {
		return fmt.Errorf("%w: %w", supervise.ErrLost, cause)
	}
	return nil
}

func (r *running) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ending
}

func (r *running) finish(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.code = err
}

// begin lets a command get signals, unless it must not begin.
func (r *running) begin(signals chan<- syscall.Signal) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending {
		return false
	}
	r.forward, r.told = signals, false
	return true
}

// once runs the command until it ends.
func (r *running) once(ctx context.Context, t *leader.Term, file *deadlines, signals chan syscall.Signal) (supervise.Status, error) {
	ctx, cancel := until(ctx, r.hard)
	defer cancel()
	defer context.AfterFunc(ctx, r.wasTold)()
	defer func() {
		r.mu.Lock()
		r.forward = nil
		r.mu.Unlock()
		for len(signals) > 0 { // the command has ended before it could get them
			r.missed(<-signals)
		}
	}()
	c := r.command(t.Epoch(), file, r.grace, signals)
	c.Held, c.Missed, c.Told, c.Bounded = t.Held, r.missed, r.wasTold, r.graceSet
	return supervise.Run(ctx, c)
}

// verdict is the error of a wait and a term.
func (r *running) verdict(ctx context.Context, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	cause := context.Cause(ctx)
	switch {
	case r.code != nil:
		return r.code
	case cause != nil:
		return cause // a signal, or it waited long enough; no command ran
	}
	return err
}

// writeDeadline replaces the file that the command may read. Its moments are those of
// /proc/uptime.
func writeDeadline(file string, epoch fence.Epoch, deadline supervise.Moment, grace time.Duration) error {
	text := fmt.Sprintf("epoch=%d\nterm=%v\nkill=%v\n", epoch, deadline.Add(-grace), deadline)
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
