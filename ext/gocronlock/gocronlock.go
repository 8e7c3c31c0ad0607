// Package gocronlock lets several machines run gocron v2 schedulers with the same jobs, and one of them run each job.
//
//	locks, err := lock.New(st, "locks", nil)
//	s, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(locks, "scheduler")))
//
// With an [Elector] one machine runs all jobs, until it ends or crashes. With a [Locker] each run of a job goes to whichever
// machine comes first. gocron passes no token to a job: a job that must not be overtaken asks [Elector.Lock] for it, and
// sends it with what it writes.
package gocronlock

import (
	"context"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/lock"
)

// Elector is a gocron.Elector. It is safe for concurrent use.
type Elector struct {
	locks *lock.Locker
	name  string

	turn chan struct{} // has a token while nobody acquires
	mu   sync.Mutex
	held *lock.Lock
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for those that use the same name. It sends no request.
func NewElector(locks *lock.Locker, name string) *Elector {
	e := &Elector{locks: locks, name: name, turn: make(chan struct{}, 1)}
	e.turn <- struct{}{}
	return e
}

// Lock returns the lock by which this machine leads, or nil. Its token is greater than that of each leader before.
func (e *Elector) Lock() *lock.Lock {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.held != nil && e.held.Check(0) == nil {
		return e.held
	}
	return nil
}

// IsLeader implements gocron.Elector. The error is lock.ErrHeld if another machine leads. It sends a request only if this
// machine does not lead.
func (e *Elector) IsLeader(ctx context.Context) error {
	if e.Lock() != nil {
		return nil
	}
	select {
	case <-e.turn:
		defer func() { e.turn <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if e.Lock() != nil {
		return nil
	}
	k, err := e.locks.TryAcquire(ctx, e.name)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = k
	return nil
}

// Resign lets another machine lead. Call it after the scheduler's Shutdown.
func (e *Elector) Resign(ctx context.Context) error {
	e.mu.Lock()
	k := e.held
	e.held = nil
	e.mu.Unlock()
	if k == nil {
		return nil
	}
	return k.Release(ctx)
}

// Locker is a gocron.Locker. It is safe for concurrent use.
type Locker struct {
	locks *lock.Locker
	splay time.Duration
	clock clock.Clock

	mu      sync.Mutex
	closing bool
	late    sync.WaitGroup
	ended   chan struct{}
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a Locker. A job's lock is held for splay at least, so that a machine whose clock is behind by less does
// not run a short job a second time. It must be less than the time between two runs. It sends no request.
func NewLocker(locks *lock.Locker, splay time.Duration) *Locker {
	return &Locker{locks: locks, splay: splay, clock: clock.System(), ended: make(chan struct{})}
}

// Lock implements gocron.Locker. The error is lock.ErrHeld if another machine runs the job, or has just run it.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	k, err := l.locks.TryAcquire(ctx, key)
	if err != nil {
		return nil, err
	}
	return &held{l: l, k: k, until: l.clock.Now().Add(l.splay)}, nil
}

// Close frees all locks whose jobs have ended. Call it after the scheduler's Shutdown, and before the lock.Locker's Close.
func (l *Locker) Close() {
	l.mu.Lock()
	if !l.closing {
		l.closing = true
		close(l.ended)
	}
	l.mu.Unlock()
	l.late.Wait()
}

type held struct {
	l     *Locker
	k     *lock.Lock
	until clock.Instant
}

// Token is the token of this run, for a program that wraps the Locker.
func (h *held) Token() uint64 { return uint64(h.k.Token().Epoch()) }

// Unlock implements gocron.Lock. It returns at once, also if the lock is held for the splay.
func (h *held) Unlock(ctx context.Context) error {
	left := h.until.Sub(h.l.clock.Now())
	h.l.mu.Lock()
	if h.l.closing || left <= 0 {
		h.l.mu.Unlock()
		return h.k.Release(ctx)
	}
	h.l.late.Go(func() {
		wait, cancel := context.WithCancel(context.Background())
		defer cancel()
		stop := h.l.clock.AfterFunc(left, cancel)
		defer stop.Stop()
		select {
		case <-wait.Done():
		case <-h.l.ended:
		}
		ctx, cancel := clock.WithTimeout(context.WithoutCancel(ctx), h.l.clock, time.Minute, lock.ErrNotReleased)
		defer cancel()
		_ = h.k.Release(ctx)
	})
	h.l.mu.Unlock()
	return nil
}
