// Package outage knows that a store does not do what one of its users asks for, and logs that
// now and then: never once for each request that fails.
package outage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/sink"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/contact"
)

// Log tells of the failures of one user of a store. It is safe for concurrent use.
type Log struct {
	logger *zap.Logger
	where  string
	clock  clock.Clock

	fails, works string        // the lines
	quiet, every time.Duration // from the first failure to the first line, and from one line to the next
	// forgotten is after how long without a failure the next one begins another outage, for
	// users that do not call Answered. 0 stands for never.
	forgotten time.Duration

	mu       sync.Mutex
	err      error         // the last failure
	failures int           // without an answer between them
	since    clock.Instant // the first of them
	last     clock.Instant // the last of them
	told     clock.Instant // the last line
	lines    int           // about this outage
}

// New returns the log of a user of st who waits for the store. It has a line at the second
// failure, and every 5 s.
func New(logger *zap.Logger, st store.Store, c clock.Clock) *Log {
	return &Log{
		logger: sink.Logger(logger), where: st.Traits().Where(), clock: clock.Or(c),
		fails: "the store does not answer; trying again", works: "the store answers again",
		every: 5 * time.Second, forgotten: 6 * time.Minute,
	}
}

// Stalled returns the log of a user of st whose requests may be refused for a moment, as when a
// store is busy. It has a line after 5 s, and each minute, which says what is not done meanwhile.
func Stalled(logger *zap.Logger, st store.Store, c clock.Clock, what string) *Log {
	l := New(logger, st, c)
	l.fails, l.works = "the store fails, and "+what+"; retrying", "the store works again"
	l.quiet, l.every, l.forgotten = 5*time.Second, time.Minute, 0
	return l
}

// Settle returns options that note each failure. Those given may be nil.
func (l *Log) Settle(opts *store.SettleOptions) *store.SettleOptions {
	var s store.SettleOptions
	if opts != nil {
		s = *opts
	}
	also := s.Retrying
	s.Retrying = func(err error) {
		if also != nil {
			also(err)
		}
		l.Failed(err)
	}
	return &s
}

// Failed notes a failure that is retried. One alone is not worth a line.
func (l *Log) Failed(err error) {
	l.mu.Lock()
	now := l.clock.Now()
	if l.failures == 0 || l.forgotten > 0 && now.Sub(l.last) > l.forgotten {
		l.failures, l.lines, l.since = 0, 0, now
	}
	l.last, l.err = now, err
	l.failures++
	lasts := now.Sub(l.since)
	tell := l.failures > 1 && lasts >= l.quiet && (l.lines == 0 || now.Sub(l.told) >= l.every)
	if tell {
		l.told = now
		l.lines++
	}
	l.mu.Unlock()
	if tell {
		l.logger.Warn(l.fails, zap.String("store", l.where), zap.Duration("for", lasts.Round(time.Millisecond)), zap.String("error", contact.Brief(err)))
	}
}

// Answered notes that the store answers.
func (l *Log) Answered() {
	l.mu.Lock()
	lines, since := l.lines, l.clock.Now().Sub(l.since)
	l.failures, l.lines, l.err = 0, 0, nil
	l.mu.Unlock()
	if lines > 0 {
		l.logger.Info(l.works, zap.String("store", l.where), zap.Duration("after", since.Round(time.Millisecond)))
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
	if l.failures == 0 || l.forgotten > 0 && now.Sub(l.last) > l.forgotten {
		return cause
	}
	return &Error{cause, now.Sub(l.since), l.err}
}

// Cause is why ctx has ended, and what the store has answered meanwhile.
func (l *Log) Cause(ctx context.Context) error { return l.Explain(context.Cause(ctx)) }
