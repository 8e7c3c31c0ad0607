package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/lease"
)

// beginWork says that there is work: Resign waits until endWork is called.
func (t *Term) beginWork() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.life.begin()
}

func (t *Term) endWork() {
	t.mu.Lock()
	next := t.life.end()
	t.mu.Unlock()
	if next == releases {
		t.workDone()
	}
}

// workDone says that the work has ended, and that the term is to end: makeWay may not have said so yet. With
// the second step the machine has all that it needs for the release, whatever Hooks.Ended does then.
func (t *Term) workDone() {
	defer close(t.idle)
	t.step(lease.Input{Signal: lease.WorkDone})
	t.step(lease.Input{Signal: lease.Resign})
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
	return t.leave(ctx, t.e.opts.Drain)
}

// leaving gives the machine the signal to resign. The work may go on for drain. why is the
// cause of a cancelled context, or nil.
func (t *Term) leaving(drain time.Duration, why error) {
	t.mu.Lock()
	next := t.life.leave(drain, why)
	t.mu.Unlock()
	switch next {
	case releases:
		t.workDone()
	case resigns:
		t.step(lease.Input{Signal: lease.Resign})
	case makesWay: // makeWay gives the signal
		close(t.leaves)
	}
}

// leave resigns and waits until the lock is released.
func (t *Term) leave(ctx context.Context, drain time.Duration) error {
	t.leaving(drain, nil)
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
