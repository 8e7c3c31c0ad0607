// Package outage logs that a store does not answer: soon, every 5 s, and never once for each
// request that fails.
package outage

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// every is the time from one line to the next.
const every = 5 * time.Second

// forgotten is after how long without a failure the next one begins another outage, for users
// that do not call Answered.
const forgotten = 2 * time.Minute

// Log tells of the failures of one user of a store. It is safe for concurrent use.
type Log struct {
	logger *zap.Logger
	where  string
	clock  clock.Clock

	mu       sync.Mutex
	err      error         // the last failure
	failures int           // without an answer between them
	since    clock.Instant // the first of them
	last     clock.Instant // the last of them
	told     clock.Instant // the last line
	lines    int           // about this outage
}

// New returns the log of one user of st.
func New(logger *zap.Logger, st store.Store, c clock.Clock) *Log {
	return &Log{logger: cmp.Or(logger, zap.NewNop()), where: st.Traits().Where(), clock: clock.Or(c)}
}

// Failed notes a failure that is retried. One alone is not worth a line.
func (l *Log) Failed(err error) {
	l.mu.Lock()
	now := l.clock.Now()
	if l.failures == 0 || now.Sub(l.last) > forgotten {
		l.failures, l.lines, l.since = 0, 0, now
	}
	l.last, l.err = now, err
	l.failures++
	tell := l.failures > 1 && (l.lines == 0 || now.Sub(l.told) >= every)
	if tell {
		l.told = now
		l.lines++
	}
	since := now.Sub(l.since)
	l.mu.Unlock()
	if tell {
		l.logger.Warn("the store does not answer; trying again", zap.String("store", l.where), zap.Duration("for", since.Round(time.Millisecond)), zap.String("error", store.Brief(err)))
	}
}

// Answered notes that the store answers.
func (l *Log) Answered() {
	l.mu.Lock()
	lines, since := l.lines, l.clock.Now().Sub(l.since)
	l.failures, l.lines, l.err = 0, 0, nil
	l.mu.Unlock()
	if lines > 0 {
		l.logger.Info("the store answers again", zap.String("store", l.where), zap.Duration("after", since.Round(time.Millisecond)))
	}
}

// Told reports whether the outage that lasts has a line already.
func (l *Log) Told() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines > 0
}

// Error is why somebody has stopped to wait, and what the store has answered meanwhile.
type Error struct {
	Cause error // why the wait has ended
	For   time.Duration
	Err   error // the last failure of the store
}

func (e *Error) Error() string {
	return fmt.Sprintf("%v (for %v the store has failed: %v)", e.Cause, e.For.Round(time.Millisecond), e.Err)
}

// Unwrap returns both errors.
func (e *Error) Unwrap() []error { return []error{e.Cause, e.Err} }

// Explain adds to the reason why a wait has ended what the store has answered meanwhile. It
// returns an [Error], or cause if the store works as far as is known.
func (l *Log) Explain(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if l.failures == 0 || now.Sub(l.last) > forgotten {
		return cause
	}
	return &Error{cause, now.Sub(l.since), l.err}
}
