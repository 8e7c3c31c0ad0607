package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Lock is a name that is held, from its acquisition to its release or loss. It is safe for concurrent use.
type Lock struct {
	l       *Locker
	session *session
	name    string
	token   fence.Token
	after   *bucket // that its acquisition has written

	ctx    context.Context //nolint:containedctx // the caller's work runs under it, and no request
	cancel context.CancelCauseFunc
	once   sync.Once
	free   chan struct{} // closed when the release is done
	err    error         // of the release
}

// Name is the name that is held.
func (k *Lock) Name() string { return k.name }

// Token is the fencing token of this acquisition: greater than that of each one before it of this name. Send it with each
// write, and let the receiver refuse a lower one. Tokens of different names say nothing of each other.
func (k *Lock) Token() fence.Token { return k.token }

// Context is cancelled when the lock is lost or released: at this process's own deadline at the latest, also if the
// network hangs. It has the values of the context that was given to Acquire. Its cause is [ErrExpired], [ErrDeposed],
// [ErrReleased] or [ErrClosed]; each is an [ErrLost].
func (k *Lock) Context() context.Context { return k.ctx }

// lose ends the context.
func (k *Lock) lose(why, err error) {
	if err != nil {
		why = fmt.Errorf("%w (%w)", why, err)
	}
	k.cancel(why)
}

// Check returns nil if the lock is held for at least need, unless the machine is frozen. Call it before each effect, with
// the time that this takes. It counts time in which the machine was suspended, and sends no request. Errors: the cause of
// [Lock.Context] if the lock is lost; [ErrShort] if less time is left. More than 9/10 of the validity never is.
func (k *Lock) Check(need time.Duration) error {
	if k.ctx.Err() != nil {
		return context.Cause(k.ctx)
	}
	// guard:lock-check. Check compares with the deadline itself, because a timer may be late after a suspend.
	//
	//mutant:replace left <= 0 => false
	if left := k.left(); left <= 0 {
		return ErrExpired
	} else if left < need {
		return fmt.Errorf("%w: %v is left, and %v is needed", ErrShort, left, need)
	}
	return nil
}

func (k *Lock) left() time.Duration {
	k.l.mu.Lock()
	defer k.l.mu.Unlock()
	return k.session.deadline.Sub(k.l.opts.Clock.Now())
}

// Held is how long nobody else can hold the name, if no further heartbeat is applied; 0 once the lock is lost or
// released. Use it to end by force what does not end with the context.
func (k *Lock) Held() time.Duration {
	if k.ctx.Err() != nil {
		return 0
	}
	return max(0, k.left())
}

// Release frees the name for others at once. Call it when the work has ended, and also if the lock was lost: it cancels
// the context first, and sends one PUT.
//
// It returns nil if the name was freed. Errors: an [ErrLost] if the lock was lost before, and then it belongs to
// somebody else or lapses; [ErrNotReleased], with ctx's cause, if ctx ends before the outcome is known. It may be called
// many times, and then waits for the first call.
func (k *Lock) Release(ctx context.Context) error {
	k.once.Do(func() {
		lost := context.Cause(k.ctx)
		var once sync.Once
		tell := func(err error) { once.Do(func() { k.err = cmp.Or(lost, err); close(k.free) }) }
		if k.cancel(ErrReleased); !k.l.spawn(func(ctx context.Context) {
			denied := func(err error) { tell(fmt.Errorf("%w: %w", ErrNotReleased, err)) }
			removed, err := k.l.drop(ctx, k, k.after, denied)
			k.l.mu.Lock()
			delete(k.session.locks, k)
			k.l.mu.Unlock()
			switch {
			case err != nil:
				denied(err)
			case !removed:
				tell(fmt.Errorf("%w: somebody else had taken %q", ErrDeposed, k.name))
			}
			tell(nil)
		}) {
			tell(ErrClosed)
		}
	})
	select {
	case <-k.free:
		return k.err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrNotReleased, context.Cause(ctx))
	}
}

// drop removes the entry of a lock from its bucket, if it is there, and makes sure that it cannot appear later. It tries
// until the session is over, and tells denied that the store refuses. At first is what the bucket is if nobody has written it since the acquisition; if that was not
// answered, it is what the acquisition meant to replace.
func (l *Locker) drop(ctx context.Context, k *Lock, first *bucket, denied func(error)) (removed bool, err error) {
	key := l.bucketKey(k.name)
	for b, pause := first, l.opts.Validity/256; ; pause = min(2*pause, l.opts.renew()) {
		if b != nil {
			mine := b.has(k)
			// guard:lock-undo. Who gives up an acquisition of unknown outcome replaces the version that it meant to
			// replace.
			//
			//mutant:replace b.version != first.version => true
			if !mine && b.version != first.version {
				return false, nil
			}
			if err = l.write(ctx, key, b, b.without(k.name)); err == nil {
				return mine, nil
			}
		}
		if err != nil && !errors.Is(err, store.ErrPrecondition) {
			// guard:lock-denied. Who gives up a name goes on trying while its session lives, also if the store refuses.
			//
			//mutant:replace k.session.isOver() => k.session.isOver() || final(err)
			if k.session.isOver() {
				return false, err
			}
			if final(err) {
				denied(err)
				pause = l.opts.renew()
			}
		}
		if err := l.pause(ctx, pause); err != nil {
			return false, err
		}
		if b, err = l.read(ctx, key); err != nil {
			b = nil
		}
	}
}

// take writes an entry for a name into the bucket b. It returns no lock and no error if somebody else was faster, or if
// the answer came too late.
func (l *Locker) take(ctx context.Context, name string, b *bucket, share uint64) (*Lock, error) {
	s, early, err := l.enter()
	if err != nil {
		return nil, err
	}
	defer s.leave()
	k := &Lock{l: l, session: s, name: name, token: fence.NewToken(b.Token + 1), free: make(chan struct{})}
	k.after = b.with(entry{
		Name: name, Token: k.token.Epoch(), Session: s.id, Holder: l.opts.Identity, ValidityMS: l.opts.Validity.Milliseconds(),
		Since: l.opts.Clock.Wall().UTC(),
	})
	k.after.Share = share
	k.ctx, k.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	err = l.write(ctx, l.bucketKey(name), b, k.after)
	if err == nil && s.hold(k, early) {
		return k, nil
	}
	k.cancel(ErrExpired)
	switch outcome := store.OutcomeOf(err); {
	case outcome == store.Refused:
		return nil, nil //nolint:nilnil // see above
	case outcome == store.Applied: // too late
		b = k.after
	case outcome == store.Rejected, errors.Is(err, fence.ErrLimit):
		return nil, err
	}
	l.spawn(func(ctx context.Context) { _, _ = l.drop(ctx, k, b, func(error) {}) })
	return nil, err
}
