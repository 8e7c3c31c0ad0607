package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// sweepAfter is how long the object of a session stays after its last write.
const sweepAfter = 24 * time.Hour

// session keeps all locks of a process alive together. It begins with the first acquisition. Its object is created by the
// first heartbeat, so a session that is shorter has none. Once it is over it stays so, and new locks get a new one.
type session struct {
	l  *Locker
	id fence.ID

	ctx    context.Context //nolint:containedctx // of its heartbeats; it ends when the session is over
	cancel context.CancelCauseFunc

	// The rest is guarded by l.mu.
	deadline clock.Instant
	timer    clock.Timer
	failed   error // the last heartbeat's error
	locks    map[*Lock]bool
	read     bool // the buckets of its locks are or were read, after the first heartbeat
	entering int  // acquisitions under way
}

// enter returns the session for a new lock, and whether that is before its first heartbeat. The caller calls leave.
func (l *Locker) enter() (s *session, early bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false, ErrClosed
	}
	now := l.opts.Clock.Now()
	if s := l.session; s != nil && now < s.deadline {
		// guard:lock-session. All locks of a session have its deadline, which counts from its beginning or from a
		// heartbeat, and not from the acquisition of a lock.
		//
		//mutant:replace s.entering++ => s.entering++; s.deadline = now.Add(l.opts.lease())
		s.entering++
		return s, !s.read, nil
	}
	s = &session{l: l, id: fence.ID(uuid.New()), deadline: now.Add(l.opts.lease()), locks: map[*Lock]bool{}, entering: 1}
	s.ctx, s.cancel = context.WithCancelCause(l.ctx)
	s.timer = l.opts.Clock.AfterFunc(l.opts.lease(), s.expire)
	l.session = s
	l.work.Go(s.live)
	return s, true, nil
}

func (s *session) leave() {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.entering--
}

// hold adds a lock whose entry was written. It reports false if the session is over.
//
// guard:lock-final. What is answered after the deadline is worth nothing: neither an acquisition nor a heartbeat.
//
//mutant:replace s.isOver() || now >= s.deadline => s.isOver() && now < s.deadline && false
func (s *session) hold(k *Lock, early bool) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	// guard:lock-flight. An acquisition that began before the first heartbeat, and is answered when its holder has begun to read
	// the buckets of its locks, is undone.
	//
	//mutant:replace early && s.read => false
	if early && s.read {
		return false
	}
	if now := s.l.opts.Clock.Now(); s.isOver() || now >= s.deadline {
		return false
	}
	s.locks[k] = true
	return true
}

// expire ends the session at its deadline.
func (s *session) expire() {
	s.l.mu.Lock()
	left := s.deadline.Sub(s.l.opts.Clock.Now())
	if left > 0 && !s.isOver() {
		s.timer = s.l.opts.Clock.AfterFunc(left, s.expire)
	}
	failed := s.failed
	s.l.mu.Unlock()
	if left <= 0 {
		s.end(ErrExpired, failed)
	}
}

func (s *session) isOver() bool { return s.ctx.Err() != nil }

// end ends the session and loses its locks.
func (s *session) end(why, err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.isOver() {
		return
	}
	if s.cancel(why); s.l.session == s {
		s.l.session = nil
	}
	s.timer.Stop()
	for k := range s.locks {
		k.lose(why, err)
	}
}

// idle ends a session that has no locks.
func (s *session) idle() bool {
	s.l.mu.Lock()
	empty := len(s.locks) == 0 && s.entering == 0
	if empty && s.l.session == s {
		s.l.session = nil // so that nobody enters
	}
	s.l.mu.Unlock()
	if empty {
		s.end(ErrReleased, nil)
	}
	return empty
}

// live sends heartbeats until the session is over.
func (s *session) live() {
	ctx := s.ctx
	var version store.Version
	verified := false
	for pause := s.l.opts.renew(); ; {
		if clock.Sleep(ctx, s.l.opts.Clock, pause) != nil || s.idle() {
			s.remove(version)
			return
		}
		sent := s.l.opts.Clock.Now()
		next, err := s.beat(ctx, version)
		if err == nil {
			version = next
			// guard:lock-verify. After the first heartbeat of a session its holder reads the buckets of its locks, and
			// only then counts the heartbeat.
			//
			//mutant:replace !verified { => !verified && false {
			if !verified {
				err = s.verify(ctx)
				verified = err == nil
				s.l.spawn(s.l.sweep)
			}
		}
		s.note(sent, err)
		pause = sent.Add(s.l.opts.renew()).Sub(s.l.opts.Clock.Now())
		switch {
		case errors.Is(err, store.ErrPrecondition):
			s.end(ErrDeposed, err)
			return
		case err != nil:
			pause = s.l.opts.Validity / 16
		}
	}
}

// note counts a heartbeat.
func (s *session) note(sent clock.Instant, err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.failed = err
	// guard:lock-sent. A deadline counts from before the heartbeat was sent.
	//
	//mutant:replace sent.Add(s.l.opts.lease()) => s.l.opts.Clock.Now().Add(s.l.opts.lease())
	if !s.isOver() && err == nil && s.l.opts.Clock.Now() < s.deadline {
		s.deadline = sent.Add(s.l.opts.lease())
	}
}

// beat writes the session's object and returns its version. The error is store.ErrPrecondition if the session was expired.
func (s *session) beat(ctx context.Context, version store.Version) (store.Version, error) {
	key := s.l.sessionKey(s.id)
	body, err := encodeSession(key, sessionDoc{Holder: s.l.opts.Identity})
	if err != nil {
		return "", err
	}
	info, err := s.l.put(ctx, key, body, version)
	if version != "" || !errors.Is(err, store.ErrPrecondition) {
		return info.Version, err
	}
	// Somebody who waits was faster and has put a placeholder.
	doc, info, err := s.l.readSession(ctx, s.id)
	switch {
	case err != nil:
		return "", err
	case doc != nil && doc.Expired:
		return "", fmt.Errorf("%w: %s has expired it", store.ErrPrecondition, doc.By)
	}
	info, err = s.l.put(ctx, key, body, info.Version)
	return info.Version, err
}

// verify reads the buckets of all locks. A lock whose entry is gone is lost.
func (s *session) verify(ctx context.Context) error {
	s.l.mu.Lock()
	s.read = true
	held := map[string][]*Lock{}
	for k := range s.locks {
		held[s.l.bucketKey(k.name)] = append(held[s.l.bucketKey(k.name)], k)
	}
	s.l.mu.Unlock()
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(64)
	for key, locks := range held {
		reads.Go(func() error {
			b, err := s.l.read(ctx, key)
			if err != nil {
				return err
			}
			for _, k := range locks {
				if !b.has(k) {
					k.lose(ErrDeposed, nil)
					s.l.mu.Lock()
					delete(s.locks, k) // it keeps the session alive no more
					s.l.mu.Unlock()
				}
			}
			return nil
		})
	}
	return reads.Wait()
}

// remove deletes the object of a session that has ended without locks. What others have expired stays for a day.
func (s *session) remove(version store.Version) {
	if errors.Is(context.Cause(s.ctx), ErrReleased) && version != "" {
		_ = store.DeleteAll(s.l.ctx, s.l.st, []string{s.l.sessionKey(s.id)}, s.l.settle)
	}
}

// sweep deletes old objects of sessions, once a day.
func (l *Locker) sweep(ctx context.Context) {
	l.mu.Lock()
	now := l.opts.Clock.Now()
	due := !l.sweeps || now >= l.swept.Add(sweepAfter)
	if due {
		l.sweeps, l.swept = true, now
	}
	l.mu.Unlock()
	if !due {
		return
	}
	var old []string
	for info, err := range store.ListAll(ctx, l.st, l.prefix+"/session/", nil, l.settle) {
		if err != nil {
			return
		}
		// guard:lock-sweep. The object of a session is deleted only when nobody has written it for a day, by the
		// store's clock.
		//
		//mutant:replace age > sweepAfter => age >= 0
		if age, known := info.Age(); known && age > sweepAfter {
			old = append(old, info.Key)
		}
	}
	_ = store.DeleteAll(ctx, l.st, old, l.settle)
}

func encodeSession(key string, doc sessionDoc) ([]byte, error) {
	doc.Format, doc.Nonce = document.Format, fence.ID(uuid.New())
	return document.Encode(key, doc)
}

// readSession reads the object of a session. The document is nil if it is none that a lock writes: then it lapses like
// any other.
func (l *Locker) readSession(ctx context.Context, id fence.ID) (*sessionDoc, store.Info, error) {
	key := l.sessionKey(id)
	body, info, err := store.Read(ctx, l.st, key, &store.ReadOptions{Limit: maxSession, Settle: l.settle})
	if err != nil {
		return nil, info, err
	}
	var doc sessionDoc
	if err = document.Decode(key, body, &doc); errors.Is(err, fence.ErrCorrupt) {
		return nil, info, nil
	}
	return &doc, info, err
}
