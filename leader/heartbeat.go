package leader

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/lease"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
)

// lead is the term's goroutine. It ends when the lock is released or lost and
// Hooks.Ended has returned.
func (t *Term) lead() {
	defer close(t.exited)
	// After this term the elector may campaign for the next.
	defer t.e.busy.Store(false)
	var helpers sync.WaitGroup
	helpers.Go(t.prune)
	helpers.Go(t.makeWay)
	t.drive(context.WithoutCancel(t.ctx))
	helpers.Wait()
	<-t.told
}

// drive sends the term's writes, one at a time, until nothing is left to do. Only
// the goroutine that holds the token t.driver may send: two would race each other
// for the version.
func (t *Term) drive(ctx context.Context) {
	<-t.driver
	defer func() { t.driver <- struct{}{} }()
	var body []byte
	var n uint64 // of the write that body belongs to
	for {
		t.mu.Lock()
		w, done := t.todo, t.done
		t.todo = nil
		if w != nil && w.N != n {
			// A retried write has the same bytes.
			n, body = w.N, t.body(w)
		}
		t.mu.Unlock()
		switch {
		case w != nil:
			sent := t.clock.Now()
			in, err := t.write(ctx, w, body)
			t.step(in)
			switch {
			case w.State != lease.Expired:
				t.beat(sent, w.Due, err)
			case in.Signal == lease.GaveUp:
				t.e.opts.Logger.Warn("the lock could not be released; successors wait until it lapses", sink.Epoch(t.epoch), zap.Error(err))
			}
		case done:
			return
		default:
			select {
			case <-t.kick:
			case <-ctx.Done():
				return
			}
		}
	}
}

// body encodes a write, and keeps its record. It is called with mu held.
func (t *Term) body(w *lease.Write) []byte {
	r := &t.record
	r.Nonce = w.Nonce
	r.Renewed = t.clock.Wall()
	r.Renewals++
	r.State = State(w.State)
	if w.State == lease.Expired {
		// Who deposed this leader has said why.
		r.Reason, r.ExpiredBy, r.Wait = cmp.Or(r.Reason, string(t.machine.Cause())), cmp.Or(t.deposer, t.e.opts.Identity), 0
	}
	body, err := r.encode()
	if err != nil {
		// A broken clock gave a time that JSON cannot express.
		t.e.opts.Logger.Error("cannot encode the lock", zap.Error(err))
	}
	return body
}

// write sends one write and returns its outcome.
func (t *Term) write(ctx context.Context, w *lease.Write, body []byte) (lease.Input, error) {
	release := w.State == lease.Expired
	// guard:capped-heartbeat. A heartbeat is cancelled when the term's deadline comes, and a release
	// when the lock lapses, but not before the time of one request.
	//
	//mutant:replace max(left, 0) => max(left, 24*time.Hour)
	t.mu.Lock()
	left := t.machine.Deadline().Sub(t.clock.Now())
	t.mu.Unlock()
	if release {
		left = max(left+t.e.opts.margin(), t.e.opts.RequestTimeout)
	}
	ctx, cancel := clock.WithTimeout(ctx, t.clock, max(left, 0), errNoAnswer)
	defer cancel()
	version, _, err := t.e.swapBody(ctx, layout.LockKey(t.e.prefix, t.epoch), body, w.Known, t.warn())
	in := lease.Input{Signal: lease.Wrote, Version: version}
	switch store.OutcomeOf(err) {
	case store.Applied:
		t.applied(w)
	case store.Refused:
		in = lease.Input{Signal: lease.Denied}
		in.Found, err = t.found(ctx, err)
	default:
		in = lease.Input{Signal: lease.Broken}
		if release {
			in.Signal = lease.GaveUp
		}
	}
	t.mu.Lock()
	t.failed = err
	t.mu.Unlock()
	return in, err
}

// applied wakes the callers of Confirm that wait for this write or an earlier one.
func (t *Term) applied(w *lease.Write) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiters = slices.DeleteFunc(t.waiters, func(x waiter) bool {
		if x.after >= w.N {
			return false
		}
		close(x.ok)
		return true
	})
}

// found reads the lock that refused a write. The error says who has expired it, and why, if
// that is known.
func (t *Term) found(ctx context.Context, refused error) (lease.Lock, error) {
	rec, _, err := t.e.read(ctx, t.epoch, "", t.e.settle(3))
	if err != nil {
		return lease.Lock{}, refused // most likely pruned; the leader is deposed in any case
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if rec.Wait > 0 {
		t.record.Reason, t.deposer = rec.Reason, rec.ExpiredBy
	}
	if rec.State == Expired {
		refused = &expiredError{reason: rec.Reason, by: rec.ExpiredBy, err: refused}
	}
	return rec.lock(), refused
}

// beat reports a heartbeat.
func (t *Term) beat(sent, due clock.Instant, err error) {
	now := t.clock.Now()
	h := Heartbeat{
		Epoch: t.epoch, Err: err, Took: now.Sub(sent), Late: max(now.Sub(due), 0),
		Remaining: t.Remaining(),
	}
	if store.OutcomeOf(err) == store.Rejected {
		t.failure(err)
	}
	if hook := t.e.opts.Hooks.Heartbeat; hook != nil {
		hook(h)
	}
}

// warn returns a function that logs failures of one write while it is retried: the first
// one, and then one in a fifteenth of the validity.
func (t *Term) warn() func(error) {
	var last clock.Instant
	told := false
	return func(err error) {
		if now := t.clock.Now(); !told || now.Sub(last) >= t.e.opts.Validity/15 {
			told, last = true, now
			t.failure(err)
		}
	}
}

func (t *Term) failure(err error) {
	if t.over.Load() != nil {
		t.e.opts.Logger.Warn("the lock is not released yet; trying again until it lapses", sink.Epoch(t.epoch), zap.Error(err))
		return
	}
	t.e.opts.Logger.Warn("heartbeat failed; trying again while the term lasts",
		sink.Epoch(t.epoch), zap.Duration("remaining", t.Remaining().Round(time.Millisecond)), zap.Error(err))
}

// prune deletes old locks while the term lasts.
func (t *Term) prune() {
	if t.e.opts.NoPrune {
		return
	}
	// Not at once, when a new leader has more urgent requests.
	for wait := t.e.opts.Validity; clock.Sleep(t.ctx, t.clock, wait) == nil; wait = 24 * time.Hour {
		n, err := t.e.Prune(t.ctx)
		if err != nil && t.ctx.Err() == nil {
			t.e.opts.Logger.Warn("pruning old locks failed", zap.Error(err))
		} else if n > 0 {
			t.e.opts.Logger.Info("pruned old locks", zap.Int("deleted", n))
		}
	}
}
