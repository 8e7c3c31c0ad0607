package fencepost_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// format is the format object of every test's log. It is made once, because making a
// log probes the store.
var format = sync.OnceValue(func() []byte {
	f, err := manifest.Init(context.Background(), memstore.New(nil), &manifest.InitOptions{Grace: -1})
	if err != nil {
		panic(err)
	}
	body, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return body
})

// world is a log in virtual time, with the processes that compete for it.
type world struct {
	*testing.T
	mem    *memstore.Store
	faulty *faultstore.Store
}

func inWorld(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	body := format()
	synctest.Test(t, func(t *testing.T) {
		mem := memstore.New(&memstore.Options{Clock: clock.Go()})
		w := &world{T: t, mem: mem, faulty: faultstore.New(mem, &faultstore.Options{Clock: clock.Go()})}
		w.put(layout.FormatKey, body)
		f(t, w)
	})
}

func (w *world) put(key string, body []byte) {
	w.Helper()
	if _, err := w.mem.Put(context.Background(), key, body, nil); err != nil {
		w.Fatal(err)
	}
}

func (w *world) keys(prefix string) []string {
	w.Helper()
	var all []string
	for info, err := range w.mem.List(context.Background(), prefix, nil) {
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, info.Key)
	}
	return all
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
	ended  chan struct{}
	err    error
	calls  atomic.Int64
}

var errStop = errors.New("the process is told to stop")

func (w *world) run(name string, opts *fencepost.Options, f work) *node {
	ctx, cancel := context.WithCancelCause(context.Background())
	n := &node{cancel: cancel, ended: make(chan struct{})}
	st := w.faulty.Client(name)
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
	e, err := leader.New(w.mem, fencepost.LockPrefix, &leader.Options{Clock: clock.Go()})
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

func (w *world) contents() []string {
	w.Helper()
	r, err := reader.Open(context.Background(), w.mem, &reader.Options{Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	var all []string
	for rec, err := range r.Read(context.Background(), 0) {
		if err != nil || rec.Offset != uint64(len(all)) {
			w.Fatalf("record %d after %d: %v", rec.Offset, len(all), err)
		}
		all = append(all, string(rec.Value))
	}
	return all
}

func (w *world) holds(want ...string) {
	w.Helper()
	if got := w.contents(); !slices.Equal(got, want) {
		w.Errorf("the log holds %q, want %q", got, want)
	}
}

func appendAsync(ctx context.Context, s *fencepost.Session, value string) error {
	_, err := s.AppendAsync(ctx, [][]byte{[]byte(value)})
	return err
}
