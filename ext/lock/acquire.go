package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Acquire waits until this process holds a name of 1 to 512 bytes of UTF-8, and returns the lock. If several wait, they
// get it about in the order in which they came. It retries transient failures of the store.
//
// Errors: ctx's cause, with a [HeldError] or the store's last failure; [ErrOptions]; [ErrClosed]; fence.ErrCorrupt or
// fence.ErrFormat if something else is under the key; permanent errors of the store, such as store.ErrDenied. After an
// error the name is not held: what may land later is undone.
func (l *Locker) Acquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, true)
}

// TryAcquire is [Locker.Acquire] without the wait: if somebody else holds the name, the error is a [HeldError]. A crashed
// holder's name is free when a second call has found it unchanged for the holder's validity and 5 s, by the store's clock.
func (l *Locker) TryAcquire(ctx context.Context, name string) (*Lock, error) {
	return l.acquire(ctx, name, false)
}

func (l *Locker) acquire(ctx context.Context, name string, wait bool) (*Lock, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	w := waiter{l: l, name: name, wait: wait}
	var held *HeldError
	for {
		k, err := w.try(ctx)
		errors.As(err, &held)
		switch {
		case k != nil:
			return k, nil
		case ctx.Err() != nil && held != nil:
			return nil, errors.Join(context.Cause(ctx), held)
		case ctx.Err() != nil:
			return nil, errors.Join(context.Cause(ctx), err)
		case final(err), err != nil && !wait:
			return nil, err
		}
		if cause := w.pause(ctx, err); cause != nil {
			return nil, errors.Join(cause, err)
		}
	}
}

// final reports whether waiting does not help.
func final(err error) bool {
	return store.Permanent(err) || errors.Is(err, ErrClosed) || errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat) || errors.Is(err, fence.ErrLimit)
}

// waiter waits for one name.
type waiter struct {
	l    *Locker
	name string
	wait bool

	watch
	pace
}

// try reads the bucket, and takes the name if it is free. It returns neither a lock nor an error if it should be called
// again soon.
func (w *waiter) try(ctx context.Context) (*Lock, error) {
	sent := w.now()
	b, err := w.l.read(ctx, w.l.bucketKey(w.name))
	if err != nil {
		return nil, err
	}
	e := b.find(w.name)
	w.saw(w.now(), w.now().Sub(sent), b, e != nil)
	if e == nil {
		if w.wait && w.defers() {
			return nil, nil //nolint:nilnil // see above
		}
		return w.l.take(ctx, w.name, b, w.nextShare(b))
	}
	held := &HeldError{Name: w.name, Holder: e.Holder, Token: fence.NewToken(e.Token), Since: e.Since}
	if dead, err := w.lapsed(ctx, e); !dead {
		return nil, errors.Join(held, err)
	}
	return w.l.take(ctx, w.name, b, b.Share)
}

// watch finds out whether a holder lives.
type watch struct {
	session fence.ID
	version store.Version // of its object, "" before the first answer
	since   clock.Instant // the answer that first showed this version
	next    clock.Instant // when to read it again
	dead    bool          // it was found expired, which is final
}

// shortcut is how much longer than a validity an object is unchanged that counts as lapsed at the first look, since stores
// tell times in whole seconds.
const shortcut = 5 * time.Second

func (w *waiter) now() clock.Instant { return w.l.opts.Clock.Now() }

// lapsed reports whether the holder's session is expired. It expires one that has not changed for a validity.
func (w *waiter) lapsed(ctx context.Context, e *entry) (bool, error) {
	if w.session != e.Session {
		w.watch = watch{session: e.Session, next: w.now()}
		if w.wait {
			w.next = w.next.Add(e.validity() / 16) // most locks are held for less
		}
	}
	sent := w.now()
	if w.dead || sent < w.next || w.l.owns(e.Session) {
		return w.dead, nil
	}
	w.spend()
	w.next = sent.Add(e.validity() / 3)
	doc, info, err := w.l.lookSession(ctx, e.Session)
	switch {
	case errors.Is(err, store.ErrNotFound):
		// guard:lock-placeholder. If a session has no object, who waits creates one and watches that, so that a holder
		// that lives replaces it.
		//
		//mutant:replace return false, w.place(ctx, e) => return true, nil
		return false, w.place(ctx, e)
	case err != nil:
		return false, err
	case doc != nil && doc.Expired:
		w.dead = true
		return true, nil
	case info.Version != w.version:
		// guard:lock-lapse. A session has lapsed when a request that was sent a whole validity after the answer that
		// first showed its version shows it again.
		//
		//mutant:replace w.now() => sent.Add(-e.validity() / 2)
		w.version, w.since = info.Version, w.now()
	}
	age, known := info.Age()
	lapse := w.since.Add(e.validity())
	if sent < lapse && !(known && age >= e.validity()+shortcut) {
		w.next = min(w.next, lapse)
		return false, nil
	}
	// guard:lock-depose. Before a lapsed lock is taken, its holder's session is swapped to expired, on the version that
	// has lapsed.
	//
	//mutant:replace return w.depose(ctx, e, info.Version) => return true, nil
	return w.depose(ctx, e, info.Version)
}

func (l *Locker) owns(id fence.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session != nil && l.session.id == id
}

// place creates a placeholder for the object of a session.
func (w *waiter) place(ctx context.Context, e *entry) error {
	key := w.l.sessionKey(e.Session)
	body, err := encodeSession(key, sessionDoc{By: w.l.opts.Identity})
	if err != nil {
		return err
	}
	info, err := w.l.put(ctx, key, body, "")
	if errors.Is(err, store.ErrPrecondition) {
		w.next = w.now() // it is there now
		return nil
	}
	if err == nil {
		w.version, w.since = info.Version, w.now()
		w.next = min(w.next, w.since.Add(e.validity()))
	}
	return err
}

// depose swaps a session to expired, and reports whether it is.
func (w *waiter) depose(ctx context.Context, e *entry, version store.Version) (bool, error) {
	key := w.l.sessionKey(e.Session)
	body, err := encodeSession(key, sessionDoc{Holder: e.Holder, Expired: true, By: w.l.opts.Identity})
	if err != nil {
		return false, err
	}
	_, err = w.l.put(ctx, key, body, version)
	if errors.Is(err, store.ErrPrecondition) {
		w.next = w.now() // it lives, or another one has expired it
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("expiring the session of %s: %w", e.Holder, err)
	}
	w.dead = true
	return true, nil
}
