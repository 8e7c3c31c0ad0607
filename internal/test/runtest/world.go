package runtest

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// World is a log in virtual time, with the processes that compete for it.
type World struct {
	*logtest.Log
}

// In runs a test with such a log.
func In(t *testing.T, f func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &World{logtest.New(t, logtest.Format(), nil)}) })
}

// Options are those of a process of that name.
func Options(name string) *fencepost.Options {
	return &fencepost.Options{
		Leader: &leader.Options{Identity: name, Clock: clock.Go()},
		Writer: &writer.Options{Clock: clock.Go(), Settle: &store.SettleOptions{Reads: 3, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}},
	}
}

// Work is what a process does while it leads.
type Work = func(ctx context.Context, s *fencepost.Session) error

// Node is a process in Run.
type Node struct {
	Cancel context.CancelCauseFunc
	Store  *faultstore.Store
	Ended  chan struct{} // closed when Run has returned
	Err    error         // what it has returned
	Calls  atomic.Int64  // how often the work was called
}

// ErrStop is why a process is told to end.
var ErrStop = errors.New("the process is told to stop")

// Start starts a process.
func (w *World) Start(name string, opts *fencepost.Options, f Work) *Node {
	ctx, cancel := context.WithCancelCause(context.Background())
	st := w.Faulty.Client(name)
	n := &Node{Cancel: cancel, Store: st, Ended: make(chan struct{})}
	go func() {
		defer close(n.Ended)
		n.Err = fencepost.Run(ctx, st, opts, func(ctx context.Context, s *fencepost.Session) error {
			n.Calls.Add(1)
			return f(ctx, s)
		})
	}()
	return n
}

// Ends waits until the node's Run returns, for a day at most.
func (w *World) Ends(n *Node) error {
	w.Helper()
	select {
	case <-n.Ended:
		return n.Err
	case <-time.After(24 * time.Hour):
		n.Cancel(ErrStop)
		<-n.Ended
		w.Errorf("Run does not end by itself; stopped, it says %v", n.Err)
		return n.Err
	}
}

// Elector returns one of the log's election.
func (w *World) Elector() *leader.Elector {
	w.Helper()
	e, err := leader.New(w.Mem, fencepost.LockPrefix, &leader.Options{Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// Free fails the test unless the newest lock is expired.
func (w *World) Free() leader.Record {
	w.Helper()
	rec, err := w.Elector().Leader(context.Background())
	if !errors.Is(err, leader.ErrNoLeader) || rec.State != leader.Expired {
		w.Errorf("the lock is %+v, %v", rec, err)
	}
	return rec
}

// Holds wants the log to have these records.
func (w *World) Holds(want ...string) {
	w.Helper()
	if got := w.Contents(); !slices.Equal(got, want) {
		w.Errorf("the log holds %q, want %q", got, want)
	}
}

// AppendAsync appends one record.
func AppendAsync(ctx context.Context, s *fencepost.Session, value string) error {
	_, err := s.AppendAsync(ctx, [][]byte{[]byte(value)})
	return err
}
