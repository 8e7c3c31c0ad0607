package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/supervise"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
)

// running is one term of exec, with the wait for it.
type running struct {
	*execution
	end  context.CancelCauseFunc // ends the wait or, in good order, the term
	hard chan struct{}           // closed: the command is told to end now
	seen fence.Epoch             // the last one, when the wait began

	mu      sync.Mutex
	leads   bool
	ending  bool                  // a signal was received that ends the command for good
	forward chan<- syscall.Signal // to the command; nil while there is none
	code    error                 // how the command has ended
}

// handle passes signals on.
func (r *running) handle(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case s := <-r.signals:
			r.receive(signalNumber(s))
		}
	}
}

func (r *running) receive(s syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !r.leads:
		if fatal(s) {
			r.ending = true
			r.end(&interrupted{s})
		}
	case s == syscall.SIGTERM && !r.ending:
		// In good order: a candidate that waits comes close first.
		r.ending = true
		r.end(&interrupted{s})
	case s == syscall.SIGTERM:
		select {
		case <-r.hard:
		default:
			close(r.hard)
		}
	case r.forward == nil && fatal(s): // between two commands: there must be no other
		r.ending = true
		r.end(&interrupted{s})
	default:
		r.ending = r.ending || s == syscall.SIGINT || s == syscall.SIGQUIT
		select {
		case r.forward <- s:
		default: // it does not take them
		}
	}
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
	r.meets(rec, self)
}

// work runs the command for as long as the term lasts.
func (r *running) work(ctx context.Context, t *leader.Term) error {
	r.mu.Lock()
	r.leads = !r.ending
	r.mu.Unlock()
	file, remove, err := deadlineFile()
	if err != nil {
		return err
	}
	defer remove()
	for wait := 250 * time.Millisecond; ; wait = min(2*wait, 30*time.Second) {
		if r.ended() { // a signal, or the end of --wait, came before there was a command
			return nil
		}
		began := clock.System().Now()
		status, err := r.once(ctx, t, file)
		if errors.Is(context.Cause(ctx), leader.ErrLost) && !errors.Is(context.Cause(ctx), leader.ErrResigned) {
			err = fmt.Errorf("%w: %w", supervise.ErrLost, context.Cause(ctx))
		}
		switch {
		case err != nil:
			r.finish(err)
			return err
		case !r.restart, ctx.Err() != nil, r.ended():
			r.finish(codeError(status.Exit()))
			return nil
		}
		if clock.System().Now().Sub(began) > time.Minute {
			wait = 250 * time.Millisecond
		}
		r.con.note("the command ended with status %d; starting it again in %v", status.Exit(), wait)
		_ = clock.Sleep(ctx, clock.System(), wait)
		if r.ended() {
			r.finish(codeError(status.Exit()))
			return nil
		}
	}
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

// once runs the command until it ends.
func (r *running) once(ctx context.Context, t *leader.Term, file string) (supervise.Status, error) {
	ctx, cancel := until(ctx, r.hard)
	defer cancel()
	signals := make(chan syscall.Signal, 16)
	r.to(signals)
	defer r.to(nil)
	return supervise.Run(ctx, &supervise.Command{
		Path: r.path, Args: r.argv, Env: r.environment(t.Epoch(), file), Watchdog: []string{"fencepost", watchdogVerb},
		Held: t.Held, Grace: r.grace, Signals: signals,
		Renewed: func(deadline supervise.Moment) { r.renewed(file, t.Epoch(), deadline, r.grace) },
	})
}

func (r *running) to(signals chan<- syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.forward = signals
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
