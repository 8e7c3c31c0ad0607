package fencepost_test

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
	"github.com/fencepost/fencepost/internal/testkit/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// world is a log in virtual time, with the processes that compete for it.
type world struct {
	*logtest.Log
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &world{logtest.New(t, logtest.Format(), nil)}) })
}

func options(name string) *fencepost.Options {
	return &fencepost.Options{
		Leader: &leader.Options{Identity: name, Clock: clock.Go()},
		Writer: &writer.Options{Clock: clock.Go(), Settle: &store.SettleOptions{Reads: 3, Backoff: time.Millisecond, MaxBackoff: 10 * time.Millisecond}},
	}
}

type work = func(ctx context.Context, s *fencepost.Session) error

// node is a process in Run.
type node struct {
	cancel context.CancelCauseFunc
	st     *faultstore.Store
	ended  chan struct{}
	err    error
	calls  atomic.Int64
}

var errStop = errors.New("the process is told to stop")

func (w *world) run(name string, opts *fencepost.Options, f work) *node {
	ctx, cancel := context.WithCancelCause(context.Background())
	st := w.Faulty.Client(name)
	n := &node{cancel: cancel, st: st, ended: make(chan struct{})}
	go func() {
		defer close(n.ended)
		n.err = fencepost.Run(ctx, st, opts, func(ctx context.Context, s *fencepost.Session) error {
			n.calls.Add(1)
			return f(ctx, s)
		})
	}()
	return n
}

// ends waits until the node's Run returns, for a day at most.
func (w *world) ends(n *node) error {
	w.Helper()
	select {
	case <-n.ended:
		return n.err
	case <-time.After(24 * time.Hour):
		n.cancel(errStop)
		<-n.ended
		w.Errorf("Run does not end by itself; stopped, it says %v", n.err)
		return n.err
	}
}

func (w *world) elector() *leader.Elector {
	w.Helper()
	e, err := leader.New(w.Mem, fencepost.LockPrefix, &leader.Options{Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	return e
}

// free fails the test unless the newest lock is expired.
func (w *world) free() leader.Record {
	w.Helper()
	rec, err := w.elector().Leader(context.Background())
	if !errors.Is(err, leader.ErrNoLeader) || rec.State != leader.Expired {
		w.Errorf("the lock is %+v, %v", rec, err)
	}
	return rec
}

func (w *world) holds(want ...string) {
	w.Helper()
	if got := w.Contents(); !slices.Equal(got, want) {
		w.Errorf("the log holds %q, want %q", got, want)
	}
}

func appendAsync(ctx context.Context, s *fencepost.Session, value string) error {
	_, err := s.AppendAsync(ctx, [][]byte{[]byte(value)})
	return err
}
