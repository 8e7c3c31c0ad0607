package lock

import (
	"context"
	"errors"
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
			if err == nil && held != nil {
				err = held
			}
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
	if w.l.over() {
		return nil, ErrClosed
	}
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
	if dead, err := w.lapsed(ctx, b, e); !dead {
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
func (w *waiter) lapsed(ctx context.Context, b *bucket, e *entry) (bool, error) {
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
	w.next = sent.Add(e.validity() / 8)
	doc, info, err := w.l.readSession(ctx, e.Session)
	switch {
	// guard:lock-placed. A session whose placeholder the bucket notes, and which has no object, is expired: what was there was
	// swept.
	//
	//mutant:replace e.Placed => false
	case errors.Is(err, store.ErrNotFound) && e.Placed:
		return w.depose(ctx, e, "")
	case errors.Is(err, store.ErrNotFound):
		// guard:lock-placeholder. If a session has no object, who waits creates one and watches that, so that a holder
		// that lives replaces it.
		//
		//mutant:replace return false, w.place(ctx, b, e) => return true, nil
		return false, w.place(ctx, b, e)
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

func (l *Locker) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// place creates a placeholder for the object of a session.
func (w *waiter) place(ctx context.Context, b *bucket, e *entry) error {
	info, err := w.mark(ctx, e, sessionDoc{}, "")
	if w.l.opts.random() < 1./16 {
		w.l.spawn(w.l.sweep) // a place in which nobody holds for long has placeholders too
	}
	if info.Version != "" {
		w.version, w.since = info.Version, w.now()
		w.next = min(w.next, w.since.Add(e.validity()))
		if !w.wait { // perhaps nobody looks again before it is swept
			err = w.l.write(ctx, w.l.bucketKey(w.name), b, b.placed(w.name))
		}
	}
	if errors.Is(err, store.ErrPrecondition) { // whoever was faster
		return nil
	}
	return err
}

// depose swaps a session to expired, and reports whether it is.
func (w *waiter) depose(ctx context.Context, e *entry, version store.Version) (bool, error) {
	info, err := w.mark(ctx, e, sessionDoc{Expired: true}, version)
	w.dead = info.Version != ""
	return w.dead, err
}

// mark writes the object of somebody else's session. If that was written meanwhile, there is no version and no error.
func (w *waiter) mark(ctx context.Context, e *entry, doc sessionDoc, old store.Version) (store.Info, error) {
	key := w.l.sessionKey(e.Session)
	doc.By = w.l.opts.Identity
	body, err := encodeSession(key, doc)
	if err != nil {
		return store.Info{}, err
	}
	info, err := w.l.put(ctx, key, body, old)
	if errors.Is(err, store.ErrPrecondition) {
		w.next = w.now() // read it again
		return store.Info{}, nil
	}
	return info, err
}

// pace decides when to read a name again, and who takes it first when it is free. Nothing depends on it but time, cost and
// turns.
//
// Nobody queues, because that would cost a write. A token is a count, so each waiter knows how many have held a name of the
// bucket since it came: its age. Winners leave in the bucket about how old they were: the share, which is how many wait.
// Who is about that old is near: it reads often, and takes the name when it is free. The others read seldom, and leave a
// free name to those for a moment.
type pace struct {
	came    fence.Epoch // the bucket's token at the first read; see known
	known   bool
	begun   clock.Instant
	age     uint64
	share   uint64
	last    fence.Epoch // the bucket's token when it was last read
	free    bool        // the name was free then
	stale   bool        // it was left to others, and nobody has taken it
	round   time.Duration
	elapsed time.Duration

	budget float64 // how many reads may be made at once
	filled clock.Instant
}

const (
	// perMinute is how many reads a waiter makes for long, and burst how many more in a row. Together they are 150.
	perMinute, burst = 104, 40
	quickest         = 60 * time.Millisecond
	slowest          = 2 * time.Second
)

// saw notes a read of the bucket.
func (w *waiter) saw(now clock.Instant, round time.Duration, b *bucket, held bool) {
	p := &w.pace
	if !p.known {
		p.known, p.came, p.begun, p.budget, p.filled = true, b.Token, now, burst, now
	}
	p.stale = !held && p.free && p.last == b.Token
	p.age, p.share, p.last, p.free = uint64(b.Token-min(p.came, b.Token)), b.Share, b.Token, !held
	p.round, p.elapsed = round, now.Sub(p.begun)
	w.spend()
}

// spend takes one read from the budget.
func (w *waiter) spend() {
	now := w.now()
	w.budget = min(burst, w.budget+now.Sub(w.filled).Minutes()*perMinute) - 1
	w.filled = now
}

// near reports whether it is about this waiter's turn.
func (p *pace) near() bool { return p.age*64 >= p.share*7 }

// defers reports whether to leave a free name to those who came earlier.
func (p *pace) defers() bool { return p.share >= 4 && !p.near() && !p.stale }

// nextShare is what the bucket says when this waiter has won.
func (p *pace) nextShare(b *bucket) uint64 {
	if p.stale && !p.near() {
		return b.Share / 2 // nobody of those is left
	}
	if now := 8 * p.age; now > b.Share {
		return b.Share + (now-b.Share+3)/4 // learn soon that many wait
	}
	return b.Share - b.Share/8 + p.age
}

// pause waits until the next read.
func (w *waiter) pause(ctx context.Context, err error) error {
	d := quickest
	switch {
	case err != nil && !errors.Is(err, ErrHeld): // the store fails
		d = w.l.opts.Validity / 16
	case w.free && err == nil && w.near(): // lost a race
	case w.free && err == nil:
		d = max(6*w.round, quickest)
	case !w.near():
		// Half of the time until this waiter is near.
		each := w.elapsed / time.Duration(max(w.age, 1))
		d = min(max(time.Duration(w.share*7/64-w.age)*each/2, quickest), slowest)
	}
	if w.near() && w.age*64 < w.share*9 {
		d *= 3 // those who are overdue come first
	}
	if w.budget < 0 {
		d = max(d, time.Duration(-w.budget/perMinute*float64(time.Minute)))
	}
	if w.session != (fence.ID{}) && !w.free && w.budget >= 0 {
		d = min(d, max(w.watch.next.Sub(w.now()), time.Millisecond))
	}
	return w.l.pause(ctx, d*4/3)
}
