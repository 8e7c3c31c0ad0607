package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/lease"
)

// Go runs a piece of the term's work in its own goroutine. [Term.Resign] waits
// for it before it frees the lock. If the term is over or being left it returns
// the [TermError], or [ErrResigned], and runs nothing.
func (t *Term) Go(work func(ctx context.Context)) error {
	ended, err := t.enter()
	if err != nil {
		return err
	}
	go func() {
		defer ended()
		work(t.ctx)
	}()
	return nil
}

// enter counts a piece of work until ended is called.
func (t *Term) enter() (ended func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if over := t.over.Load(); over != nil {
		return nil, over
	}
	if t.ending {
		return nil, ErrResigned
	}
	t.works++
	return func() {
		t.mu.Lock()
		t.works--
		last := t.works == 0 && t.ending
		t.mu.Unlock()
		if last {
			t.workDone()
		}
	}, nil
}

func (t *Term) workDone() {
	t.step(lease.Input{Signal: lease.WorkDone})
	close(t.idle)
}

// Resign ends the term in good order: the lock says that it is draining, so
// that followers look closely; the work goes on for Options.Drain or until it
// ends by itself; its context is cancelled; when it has ended, the lock is
// swapped to expired, and the next leader follows within moments. Heartbeats go
// on until then.
//
// The work is what runs in [Elector.Run] or [Term.Go]. If there is none, as
// after a plain Campaign, calling Resign says that it has ended, and the lock is
// freed at once. After a lost term Resign waits for the work likewise and then
// frees the lock, if it is still there to be freed.
//
// It returns nil when the lock is free; the [TermError] if the term was lost
// before; [ErrNotReleased]; or ctx's cause, and then the rest goes on by itself.
// It may be called many times, and must not be called by the work itself with a
// context that outlives the work's.
func (t *Term) Resign(ctx context.Context) error {
	return t.leave(ctx, lease.Input{Drain: t.drain()})
}

// Handover is [Term.Resign] in favour of the candidate of that identity: others
// stand back for a tenth of the validity. Its cause is [ErrHandedOver].
func (t *Term) Handover(ctx context.Context, to string) error {
	if !validIdentity(to) || to == t.e.opts.Identity {
		return fmt.Errorf("%w: hand over to somebody else, not to %q", ErrOptions, to)
	}
	return t.leave(ctx, lease.Input{Drain: t.drain(), Successor: to})
}

// drain is for how long the work may go on, if there is any.
func (t *Term) drain() (d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.works > 0 {
		d = max(t.e.opts.Drain, 0)
	}
	return d
}

// leaving tells the machine, with why from a cancelled context.
func (t *Term) leaving(in lease.Input, why error) {
	in.Signal = lease.Resign
	t.mu.Lock()
	first := !t.ending
	t.ending = true
	if t.why == nil {
		t.why = why
	}
	idle := first && t.works == 0
	t.mu.Unlock()
	t.step(in)
	if idle {
		t.workDone()
	}
}

// leave tells the machine and waits for what follows.
func (t *Term) leave(ctx context.Context, in lease.Input) error {
	t.leaving(in, nil)
	for _, done := range []<-chan struct{}{t.idle, t.exited} {
		select {
		case <-done:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	// A lost term's driver has ended before its work. The machine knows whether
	// the lock is still there to be freed.
	last, cancel := clock.WithTimeout(ctx, t.clock, t.e.opts.Validity, errNoAnswer)
	defer cancel()
	t.drive(last)
	return t.outcome(in)
}

func (t *Term) outcome(in lease.Input) error {
	over := t.over.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case over.lost():
		return over
	case t.machine.Released(), in.Keep:
		return nil
	case t.failed != nil:
		return fmt.Errorf("%w: %w", ErrNotReleased, t.failed)
	}
	return errors.Join(ErrNotReleased, ErrDeposed)
}
