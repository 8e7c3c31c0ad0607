package fencepost

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/writer"
)

// Session is one leadership of the log: an open writer and the term of the election
// that it writes in. [Run] passes one to each call of the work. It is safe for
// concurrent use.
//
// The session has the writer's methods too: Append, Recovered, CommitFiles and so on. The end of
// the term ends the work's context, and context.Cause tells why.
type Session struct {
	*writer.Writer

	term     *leader.Term
	clock    clock.Clock
	resigned atomic.Pointer[clock.Instant] // when Resign was called first
	promised *atomic.Int64                 // until when a Check has promised the term
	most     time.Duration                 // that a Check can promise

	mu   sync.Mutex // held while Resign tells the term
	over bool       // the work has returned
}

// Done is closed when the writer takes no appends any more: see [writer.Writer.Done]. The term may
// last longer.
func (s *Session) Done() <-chan struct{} { return s.Writer.Done() }

// Err is why the writer takes no appends any more, or nil: see [writer.Writer.Err]. It says nothing of the
// term: see Check.
func (s *Session) Err() error { return s.Writer.Err() }

// Token is the fencing token of this leadership, for a writer of another log. For other
// sinks send the Epoch with each request: see fence.Gate.
func (s *Session) Token() fence.Token { return s.term.Token() }

// Remaining is how long this process may still act as the leader if no further
// heartbeat gets through. It is 0 once the term is over. It takes some 100 ns on
// Linux and allocates nothing.
func (s *Session) Remaining() time.Duration { return s.term.Remaining() }

// Check returns nil if the term lasts for at least need. Call it before each side
// effect outside the log; appends need no check, because the log refuses a zombie's.
// Errors: leader.ErrShort if less time is left, which says how much; the
// leader.TermError if the term is over. A need above 9/10 of Options.Leader's Validity,
// 13.5 s by default, can never be met. Success takes about 1 µs on Linux and allocates
// nothing.
//
// When this leader hands over, its successor leads only after the time that Check has promised.
//
// A process can be paused right after Check. An effect that must not happen twice
// needs its epoch checked at its destination: see fence.Gate.
func (s *Session) Check(need time.Duration) error {
	// What is refused is no promise.
	if err := s.term.Check(need); need <= 0 || err != nil {
		return err
	}
	// It is noted before the term is asked again. So when the term ends after a nil, Run knows.
	until := int64(s.clock.Now().Add(min(need, s.most)))
	for old := s.promised.Load(); old < until && !s.promised.CompareAndSwap(old, until); {
		old = s.promised.Load()
	}
	return s.term.Check(need)
}

// Progress tells the election that the work is alive. If Options.Leader.StallAfter
// is set, the work must call Progress at least that often, or the term ends with
// leader.ErrStalled. Appends do not count; that Run opens and closes the writer does. It
// costs as much as Check.
func (s *Session) Progress() { s.term.Progress() }

// Confirm proves with one heartbeat, a request to the store, that this process leads
// at some moment during the call. Errors: the leader.TermError if the term is over;
// ctx's cause. On stores that limit how often a key is rewritten, Confirm waits for
// its turn.
func (s *Session) Confirm(ctx context.Context) error { return s.term.Confirm(ctx) }

// Resign makes way for another leader. It returns at once, without waiting for the
// store, and may be called several times and from any goroutine.
//
// If another candidate waits, the lock announces that this leader is leaving. The work and
// its appends go on. As soon as the candidate watches the lock closely, and after
// Options.Leader.Drain at the latest, the term ends: Check says so, and Run frees the lock.
// Appends still go on until the new leader seals the log, for a fifth of the validity at
// most. Then the work's context ends, with leader.ErrResigned as its cause. If nobody
// waits, it ends at once. An append that the seal has stopped fails with
// writer.ErrNotCommitted. When the work has returned, Run closes the writer.
//
// What the work returns decides what Run does next. If it returns an error that is
// leader.ErrLost, such as context.Cause(ctx), or context.Canceled, Run contends again.
// Before that it gives other candidates at least one heartbeat interval from the call
// of Resign to take over. If the work returns nil, and everything that it appended is in the
// history, it is done and Run returns nil. If it returns any other error, Run returns that.
//
// Work that knows when it will end calls Resign before that, works on while Check(0) returns
// nil, and then returns nil. The next leader appends within moments, and no append is stopped.
//
// If the term was lost before Resign or is lost meanwhile, Run goes on as after
// every lost term.
func (s *Session) Resign() {
	now := s.clock.Now()
	if !s.resigned.CompareAndSwap(nil, &now) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return // a goroutine has outlived the work, and Run frees the lock already
	}
	// Term.Resign waits for the work, which may be the caller here. With a context that
	// has ended it announces the end and does not wait.
	_ = s.term.Resign(ended)
}

// close is called when the work has returned.
func (s *Session) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
