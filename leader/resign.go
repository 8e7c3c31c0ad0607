package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/lease"
)

// beginWork says that there is work: Resign waits until endWork is called.
func (t *Term) beginWork() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.working = true
}

func (t *Term) endWork() {
	t.mu.Lock()
	t.working = false
	ending, way := t.ending, t.way
	t.mu.Unlock()
	if ending {
		way.Drain = 0
		t.workDone(way)
	}
}

// workDone says that the work has ended, and that the term is to end: makeWay may not have said so yet. With
// the second step the machine has all that it needs for the release, whatever Hooks.Ended does then.
func (t *Term) workDone(resign lease.Input) {
	defer close(t.idle)
	t.step(lease.Input{Signal: lease.WorkDone})
	resign.Signal = lease.Resign
	t.step(resign)
}

// Resign ends the term and releases the lock, so that the next leader follows
// within moments:
//
//  1. The lock announces that it is draining; candidates then read it often.
//  2. The work goes on until a candidate has seen that, or until it ends by itself, for
//     Options.Drain at most. If no candidate waits, it ends at once.
//  3. The term's context is cancelled, and Resign waits for the work.
//  4. The lock is swapped to expired. Heartbeats go on until then.
//
// The work is what runs in [Elector.Run]. Without any, as after a plain Campaign,
// Resign releases the lock at once. If the term was lost, Resign still
// waits for the work, and releases the lock if nobody else has expired it.
//
// It returns nil when the lock is released; the [TermError] if the term was lost
// before; [ErrNotReleased]; or ctx's cause, and then the steps go on without the
// caller. It may be called many times. If the work itself calls it, then only with
// the work's context, or both would wait for each other.
func (t *Term) Resign(ctx context.Context) error {
	return t.leave(ctx, lease.Input{Drain: t.e.opts.Drain})
}

// Handover is [Term.Resign] in favour of the candidate with the identity to: others
// wait for a tenth of the validity before they take over. The term's cause is
// [ErrHandedOver].
func (t *Term) Handover(ctx context.Context, to string) error {
	if !validIdentity(to) || to == t.e.opts.Identity {
		return fmt.Errorf("%w: Handover needs the identity of another candidate, not %.40q", ErrOptions, to)
	}
	return t.leave(ctx, lease.Input{Drain: t.e.opts.Drain, Successor: to})
}

// leaving gives the machine the signal to resign. why is the cause of a cancelled
// context, or nil.
func (t *Term) leaving(in lease.Input, why error) {
	in.Signal = lease.Resign
	t.mu.Lock()
	first := !t.ending
	t.ending = true
	if t.why == nil {
		t.why = why
	}
	if !t.working {
		in.Drain = 0
	}
	idle := first && !t.working
	later := in.Drain > 0 // makeWay gives the signal
	switch {
	case later && first:
		t.way = in
		close(t.leaves)
	case t.way.Drain > 0:
		// It is leaving already, perhaps in favour of a candidate that was named.
		t.way.Successor = cmp.Or(t.way.Successor, in.Successor)
		in.Successor = t.way.Successor
	}
	t.mu.Unlock()
	switch {
	case idle:
		t.workDone(in)
	case !later:
		t.step(in)
	}
}

// leave resigns and waits until the lock is released.
func (t *Term) leave(ctx context.Context, in lease.Input) error {
	t.leaving(in, nil)
	t.releasing.Do(func() {
		go func() { // it goes on without the caller
			defer close(t.released)
			<-t.idle
			<-t.exited
			// The driver of a lost term ends before the work does. The machine knows whether
			// there is still a lock to release.
			last, cancel := clock.WithTimeout(context.WithoutCancel(ctx), t.clock, t.e.opts.Validity, errNoAnswer)
			defer cancel()
			t.drive(last)
		}()
	})
	select {
	case <-t.released:
		return t.outcome()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *Term) outcome() error {
	over := t.over.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case over.lost():
		return over
	case t.machine.Released():
		return nil
	case t.failed != nil:
		return fmt.Errorf("%w: %w", ErrNotReleased, t.failed)
	}
	return errors.Join(ErrNotReleased, ErrDeposed)
}
