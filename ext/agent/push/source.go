package push

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// Method is the method of the agent that pushes.
const Method = "/fencepost.agent.v1.Agent/Tail"

const (
	// again is how long a source waits before it tries once more, and the longest such time.
	again, seldom = time.Second, time.Minute
	// largest is the largest object that is taken, in bytes.
	largest = 128 << 20
)

// Source returns a function for reader.Options.Push, for the log in st: it connects to the leader, if that has announced
// where it pushes. For that it reads the lock once in each epoch. The clock is the machine's if c is nil.
func Source(st store.Store, c clock.Clock) func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
	s := &source{st: st, clock: clock.Or(c), turn: make(chan struct{}, 1)}
	return func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
		return func(yield func([]byte) bool) { s.yield(ctx, at, yield) }
	}
}

// source is what the streams of a reader share.
type source struct {
	st    store.Store
	clock clock.Clock

	turn   chan struct{} // holds one who looks for the leader
	epoch  fence.Epoch   // of the leader that is known
	leader Announcement
	client *http.Client // of that leader

	mu    sync.Mutex
	pause time.Duration
}

// yield yields what the leader of the epoch pushes. It ends when that ends, after a pause that grows while nothing comes.
func (s *source) yield(ctx context.Context, at fence.Position, yield func([]byte) bool) {
	client, a, err := s.find(ctx, at.Epoch)
	if err == nil {
		err = s.follow(ctx, client, a, at, yield)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	if errors.Is(err, store.ErrDenied) {
		<-ctx.Done() // it may not read the lock
		return
	}
	s.mu.Lock()
	s.pause = min(max(2*s.pause, again), seldom)
	pause := s.pause
	s.mu.Unlock()
	// After a change of leaders many readers try at once.
	_ = clock.Sleep(ctx, s.clock, pause/2+rand.N(pause))
}

// waits sets the last pause.
func (s *source) waits(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pause = d
}

var errNobody = errors.New("push: the leader has not announced where it pushes")

// find returns the client of the leader of an epoch.
func (s *source) find(ctx context.Context, epoch fence.Epoch) (*http.Client, Announcement, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, Announcement{}, context.Cause(ctx)
	}
	if s.epoch != epoch {
		e, err := leader.New(s.st, fencepost.LockPrefix, &leader.Options{Clock: s.clock})
		if err != nil {
			return nil, Announcement{}, err
		}
		rec, err := e.Leader(ctx)
		if err != nil {
			return nil, Announcement{}, err
		}
		if rec.Epoch != epoch { // a newer one has not sealed the log yet, or the log has no election
			return nil, Announcement{}, errNobody
		}
		if s.client != nil {
			s.client.CloseIdleConnections()
		}
		s.epoch, s.leader = epoch, Parse(rec.Announce)
		s.waits(0)
		s.client = &http.Client{Transport: &http.Transport{TLSClientConfig: Pinned(s.leader.Cert), ForceAttemptHTTP2: true, TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: time.Minute}}
	}
	if s.leader.Tail == "" {
		return nil, Announcement{}, errNobody
	}
	return s.client, s.leader, nil
}

// follow yields what one stream brings. The error is nil if something came.
func (s *source) follow(ctx context.Context, c *http.Client, a Announcement, at fence.Position, yield func([]byte) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := connect.NewRequest(&agentpb.TailRequest{Epoch: uint64(at.Epoch), Seq: at.Seq})
	q.Header().Set("Authorization", "Bearer "+a.Token)
	out, err := connect.NewClient[agentpb.TailRequest, agentpb.TailResponse](c, "https://"+a.Tail+Method, connect.WithReadMaxBytes(largest)).CallServerStream(ctx, q)
	if err != nil {
		return err
	}
	came := false
	defer func() { _ = out.Close() }()
	defer cancel() // before Close, which would read to the end
	for out.Receive() {
		if !came {
			came = true
			s.waits(0)
		}
		if !yield(out.Msg().GetObject()) {
			return nil
		}
	}
	if came || connect.CodeOf(out.Err()) == connect.CodeOutOfRange {
		return nil
	}
	return out.Err()
}
