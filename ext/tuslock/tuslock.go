// Package tuslock keeps the locks of uploads of tusd v2 in an object store, so that several instances of tusd may serve one
// bucket.
//
//	locks, err := lock.New(st, "locks", nil)
//	locker, err := tuslock.New(st, "locks-wanted", locks)
//	locker.UseIn(composer)
//
// tusd passes no token to its data store, so the token protects nothing here. If an instance is frozen in a PATCH past its
// lease and goes on, it may still write a part of that upload. S3's own rule helps then: a part is overwritten by the last
// write of its number, and the client sees a wrong offset.
package tuslock

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// look is how often a holder looks whether another instance wants its lock.
const look = time.Second

// Locker is a handler.Locker. It is safe for concurrent use.
type Locker struct {
	notes store.Store
	locks *lock.Locker
	// Clock is the machine's by default. Set it before the first lock.
	Clock clock.Clock
}

var _ handler.Locker = (*Locker)(nil)

// New returns a Locker that asks other instances for their locks by notes below a prefix of a store. All instances use the
// same prefix, and Lockers with one place. It sends no request. The caller closes the lock.Locker. The error is
// store.ErrInvalid.
func New(st store.Store, prefix string, locks *lock.Locker) (*Locker, error) {
	if store.IsNil(st) || locks == nil || prefix == "" {
		return nil, fmt.Errorf("tuslock: %w: it needs a store, a prefix and a Locker", store.ErrInvalid)
	}
	notes, err := store.Sub(st, prefix)
	if err != nil {
		return nil, err
	}
	return &Locker{notes: notes, locks: locks, Clock: clock.System()}, nil
}

// UseIn adds the locker to what tusd is made of.
func (l *Locker) UseIn(composer *handler.StoreComposer) { composer.UseLocker(l) }

// NewLock implements handler.Locker.
func (l *Locker) NewLock(id string) (handler.Lock, error) {
	return &uploadLock{l: l, id: id, note: fmt.Sprintf("%x", sha256.Sum256([]byte(id)))}, nil
}

type uploadLock struct {
	l        *Locker
	id, note string

	k    *lock.Lock
	stop context.CancelFunc
	over *atomic.Bool // the holder was asked, or has unlocked
}

// errAgain ends a wait for the lock, so that another note is written for another holder.
var errAgain = errors.New("tuslock: not yet")

// Lock implements handler.Lock. If another instance holds the lock, its requestUnlock is called within about two seconds.
// The error is handler.ErrLockTimeout if ctx ends first.
func (u *uploadLock) Lock(ctx context.Context, requestUnlock func()) error {
	k, err := u.l.locks.TryAcquire(ctx, u.id)
	for err != nil {
		u.want(ctx, err)
		if k, err = u.wait(ctx); !errors.Is(err, errAgain) {
			break
		}
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.Join(handler.ErrLockTimeout, err)
	case err != nil:
		return err
	}
	watch, stop := context.WithCancel(k.Context())
	u.k, u.stop, u.over = k, stop, new(atomic.Bool)
	go u.watch(watch, k.Token().Epoch(), u.over, requestUnlock)
	return nil
}

// want writes a note for the holder. It is a hint: it names the token whose holder is to end. One that is lost is written again.
func (u *uploadLock) want(ctx context.Context, err error) {
	if held, ok := errors.AsType[*lock.HeldError](err); ok {
		ctx, cancel := clock.WithTimeout(ctx, u.l.Clock, look, errAgain)
		defer cancel()
		_, _ = u.l.notes.Put(ctx, u.note, []byte(strconv.FormatUint(uint64(held.Token.Epoch()), 10)), nil)
	}
}

// wait waits for the lock, but not for long: then the error is errAgain.
func (u *uploadLock) wait(ctx context.Context) (*lock.Lock, error) {
	some, cancel := clock.WithTimeout(ctx, u.l.Clock, 5*look, errAgain)
	defer cancel()
	k, err := u.l.locks.Acquire(some, u.id)
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return k, err
}

// watch calls requestUnlock once if another instance wants the lock, or if the lock is lost. ctx ends then, and when it is
// unlocked.
func (u *uploadLock) watch(ctx context.Context, token fence.Epoch, over *atomic.Bool, requestUnlock func()) {
	for clock.Sleep(ctx, u.l.Clock, look) == nil {
		if wanted, ok := u.noted(ctx); ok && wanted >= token {
			break
		}
	}
	if over.CompareAndSwap(false, true) {
		requestUnlock()
	}
}

// noted returns the token whose holder is to end, if there is a note.
func (u *uploadLock) noted(ctx context.Context) (fence.Epoch, bool) {
	body, _, err := store.Read(ctx, u.l.notes, u.note, &store.ReadOptions{Limit: 32, Settle: &store.SettleOptions{Reads: 1}})
	if err != nil {
		return 0, false
	}
	n, _ := strconv.ParseUint(string(body), 10, 64) // 0 asks nobody
	return fence.Epoch(n), true
}

// Unlock implements handler.Lock. It may be called in requestUnlock, which is not called any more when it has returned.
func (u *uploadLock) Unlock() error {
	u.over.Store(true)
	u.stop()
	ctx, cancel := clock.WithTimeout(context.Background(), u.l.Clock, time.Minute, lock.ErrNotReleased)
	defer cancel()
	if _, ok := u.noted(ctx); ok {
		_ = store.DeleteAll(ctx, u.l.notes, []string{u.note}, nil)
	}
	return u.k.Release(ctx)
}
