package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

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

	// The rest is guarded by l.mu.
	deadline clock.Instant
	timer    clock.Timer
	over     error
	failed   error // the last heartbeat's error
	locks    map[*Lock]bool
	entering int           // acquisitions under way
	ended    chan struct{} // closed when it is over
}

// enter returns the session for a new lock. The caller calls leave.
func (l *Locker) enter() (*session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	now := l.opts.Clock.Now()
	if s := l.session; s != nil && now < s.deadline {
		// guard:lock-session. All locks of a session have its deadline, which counts from its beginning or from a
		// heartbeat, and not from the acquisition of a lock.
		//
		//mutant:replace s.entering++ => s.entering++; s.deadline = now.Add(l.opts.lease())
		s.entering++
		return s, nil
	}
	s := &session{l: l, deadline: now.Add(l.opts.lease()), locks: map[*Lock]bool{}, ended: make(chan struct{}), entering: 1}
	s.id = fence.ID(uuid.New())
	s.timer = l.opts.Clock.AfterFunc(l.opts.lease(), s.expire)
	l.session = s
	l.spawn(s.live)
	return s, nil
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
//mutant:replace s.over != nil || now >= s.deadline => false
func (s *session) hold(k *Lock) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if now := s.l.opts.Clock.Now(); s.over != nil || now >= s.deadline {
		return false
	}
	s.locks[k] = true
	return true
}

// expire ends the session at its deadline.
func (s *session) expire() {
	s.l.mu.Lock()
	left := s.deadline.Sub(s.l.opts.Clock.Now())
	if left > 0 && s.over == nil {
		s.timer = s.l.opts.Clock.AfterFunc(left, s.expire)
	}
	failed := s.failed
	s.l.mu.Unlock()
	if left <= 0 {
		s.end(ErrExpired, failed)
	}
}

// end ends the session and loses its locks.
func (s *session) end(why, err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.over != nil {
		return
	}
	s.over = why
	if s.l.session == s {
		s.l.session = nil
	}
	s.timer.Stop()
	close(s.ended)
	for k := range s.locks {
		k.lose(why, err)
	}
}

// idle ends a session that has no locks.
func (s *session) idle() bool {
	s.l.mu.Lock()
	empty := len(s.locks) == 0 && s.entering == 0
	if empty && s.l.session == s {
		s.l.session = nil
	}
	s.l.mu.Unlock()
	if empty {
		s.end(ErrReleased, nil)
	}
	return empty
}

// live sends heartbeats until the session is over.
func (s *session) live(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer s.await(cancel)()
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
			//mutant:replace !verified => false
			if !verified {
				err = s.verify(ctx)
				verified = err == nil
				s.l.sweep()
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

// await cancels a context when the session is over.
func (s *session) await(cancel context.CancelCauseFunc) (stop func()) {
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-s.ended:
			cancel(ErrLost)
		case <-stopped:
		}
	})
	return func() { close(stopped); wg.Wait() }
}

// note counts a heartbeat.
func (s *session) note(sent clock.Instant, err error) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.failed = err
	// guard:lock-sent. A deadline counts from before the heartbeat was sent.
	//
	//mutant:replace sent.Add(s.l.opts.lease()) => s.l.opts.Clock.Now().Add(s.l.opts.lease())
	if s.over == nil && err == nil && s.l.opts.Clock.Now() < s.deadline {
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
	doc, version, err := s.l.readSession(ctx, s.id)
	switch {
	case err != nil:
		return "", err
	case doc != nil && doc.Expired:
		return "", fmt.Errorf("%w: %s has expired it", store.ErrPrecondition, doc.By)
	}
	info, err = s.l.put(ctx, key, body, version)
	return info.Version, err
}

// verify reads the buckets of all locks. A lock whose entry is gone is lost.
func (s *session) verify(ctx context.Context) error {
	s.l.mu.Lock()
	held := map[string][]*Lock{}
	for k := range s.locks {
		held[s.l.bucketKey(k.name)] = append(held[s.l.bucketKey(k.name)], k)
	}
	s.l.mu.Unlock()
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	turns := make(chan struct{}, 64)
	for key, locks := range held {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			b, err := s.l.read(ctx, key)
			if err != nil {
				failed.Store(&err)
				return
			}
			for _, k := range locks {
				if e := b.find(k.name); e == nil || e.Session != s.id || e.Token != k.token.Epoch() {
					k.lose(ErrDeposed, nil)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// remove deletes the object of a session that has ended without locks. What others have expired stays for a day.
func (s *session) remove(version store.Version) {
	s.l.mu.Lock()
	idle := errors.Is(s.over, ErrReleased)
	s.l.mu.Unlock()
	if !idle || version == "" {
		return
	}
	s.l.spawn(func(ctx context.Context) {
		ctx, cancel := clock.WithTimeout(ctx, s.l.opts.Clock, s.l.opts.Validity, ErrLost)
		defer cancel()
		_ = store.DeleteAll(ctx, s.l.st, []string{s.l.sessionKey(s.id)}, s.l.settle)
	})
}

// sweep deletes old objects of sessions, once a day.
func (l *Locker) sweep() {
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
	l.spawn(func(ctx context.Context) {
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
		for keys := range slices.Chunk(old, 1000) {
			if store.DeleteAll(ctx, l.st, keys, l.settle) != nil {
				return
			}
		}
	})
}

func encodeSession(key string, doc sessionDoc) ([]byte, error) {
	doc.Format, doc.Nonce = document.Format, fence.ID(uuid.New())
	return document.Encode(key, doc)
}

// readSession reads the object of a session. The document is nil if it is none that a lock writes: then it lapses like
// any other.
func (l *Locker) readSession(ctx context.Context, id fence.ID) (*sessionDoc, store.Version, error) {
	doc, info, err := l.lookSession(ctx, id)
	return doc, info.Version, err
}

func (l *Locker) lookSession(ctx context.Context, id fence.ID) (*sessionDoc, store.Info, error) {
	key := l.sessionKey(id)
	body, info, err := store.Read(ctx, l.st, key, &store.ReadOptions{Limit: maxSession, Settle: l.settle})
	if err != nil {
		return nil, info, err
	}
	var doc sessionDoc
	err = document.Decode(key, body, &doc)
	switch {
	case errors.Is(err, fence.ErrCorrupt):
		return nil, info, nil
	case err != nil:
		return nil, info, fmt.Errorf("lock: %w", err)
	}
	return &doc, info, nil
}
