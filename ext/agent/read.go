package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
)

const (
	// batchBytes and batchRecords are how much a message of Read has, about.
	batchBytes   = 256 << 10
	batchRecords = 1000
)

// read returns the method Read, or Follow.
func (s *Server) read(follow bool) func(context.Context, *agentpb.ReadRequest, *connect.ServerStream[agentpb.ReadResponse]) error {
	return func(ctx context.Context, q *agentpb.ReadRequest, out *connect.ServerStream[agentpb.ReadResponse]) error {
		l, err := s.log(ctx, q.GetUrl())
		if err != nil {
			return err
		}
		r, err := s.open(ctx, l)
		if err != nil {
			return status(err)
		}
		from, epoch := reader.Oldest, fence.Epoch(0)
		if q.GetConsumer() != "" {
			c, err := s.take(ctx, l, r, q.GetConsumer())
			if err != nil {
				return status(err)
			}
			epoch = c.Epoch()
			if next, ok := c.Next(); ok {
				from = next
			}
		}
		if q.From != nil {
			from = q.GetFrom()
		}
		records := r.Read
		if follow {
			records = r.Tail
		}
		err = send(ctx, records, from, epoch, out)
		if errors.Is(err, context.Canceled) {
			return connect.NewError(connect.CodeUnavailable, errors.New("agent: it is about to end; go on at another one"))
		}
		return status(err)
	}
}

// send sends records, many in a message if they come at once. The first one has the consumer's epoch.
func send(ctx context.Context, records func(context.Context, uint64) iter.Seq2[reader.Record, error], from uint64, epoch fence.Epoch, out *connect.ServerStream[agentpb.ReadResponse]) error {
	ctx, cancel := context.WithCancel(ctx)
	found := newBasket()
	var reading sync.WaitGroup
	reading.Go(func() {
		for rec, err := range records(ctx, from) {
			if err != nil || !found.put(&agentpb.Record{Offset: rec.Offset, Value: rec.Value, UnixNanos: rec.Time.UnixNano()}) {
				found.end(err)
				return
			}
		}
		found.end(nil)
	})
	defer func() { // the reader has ended before the handler returns
		cancel()
		found.end(nil)
		reading.Wait()
	}()
	for {
		batch, err := found.take()
		if len(batch) == 0 {
			return err
		}
		if err := out.Send(&agentpb.ReadResponse{Records: batch, Epoch: uint64(epoch)}); err != nil {
			return err
		}
		epoch = 0
	}
}

// basket has the records of the next message: about as many bytes as a message has, however slowly the client reads.
type basket struct {
	mu      sync.Mutex
	changed sync.Cond
	records []*agentpb.Record
	size    int
	over    bool
	err     error
}

func newBasket() *basket {
	b := new(basket)
	b.changed.L = &b.mu
	return b
}

// put adds a record when there is room. It reports false if nobody takes it.
func (b *basket) put(r *agentpb.Record) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for (b.size >= batchBytes || len(b.records) >= batchRecords) && !b.over {
		b.changed.Wait()
	}
	if b.over {
		return false
	}
	b.records, b.size = append(b.records, r), b.size+len(r.GetValue())
	b.changed.Broadcast()
	return true
}

// end says that no more records come. The first call counts.
func (b *basket) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over {
		b.over, b.err = true, err
		b.changed.Broadcast()
	}
}

// take returns all records, as soon as there are some; none, and the error, at the end.
func (b *basket) take() ([]*agentpb.Record, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.records) == 0 && !b.over {
		b.changed.Wait()
	}
	all := b.records
	b.records, b.size = nil, 0
	b.changed.Broadcast()
	return all, b.err
}

// take takes the position of a consumer over.
func (s *Server) take(ctx context.Context, l *log, r *reader.Reader, name string) (*reader.Consumer, error) {
	c, err := r.TakeConsumer(ctx, name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.consumers) >= maxKept {
		clear(s.consumers) // their clients are told to take them over again
	}
	key := [2]string{l.url, name}
	if last := s.consumers[key]; last == nil || last.Epoch() < c.Epoch() {
		s.consumers[key] = c
	}
	return c, nil
}

// consumer takes a position over, or notes it.
func (s *Server) consumer(ctx context.Context, q *agentpb.ConsumerRequest) (*agentpb.ConsumerResponse, error) {
	l, err := s.log(ctx, q.GetUrl())
	if err != nil {
		return nil, err
	}
	r, err := s.open(ctx, l)
	if err != nil {
		return nil, status(err)
	}
	if q.Next == nil {
		c, err := s.take(ctx, l, r, q.GetName())
		if err != nil {
			return nil, status(err)
		}
		a := agentpb.ConsumerResponse{Epoch: uint64(c.Epoch())}
		if next, ok := c.Next(); ok {
			a.Next = &next
		}
		return &a, nil
	}
	c, err := s.taken(l, q)
	if err != nil {
		return nil, err
	}
	if err := c.Commit(ctx, q.GetNext()); err != nil {
		return nil, status(err)
	}
	return &agentpb.ConsumerResponse{Next: q.Next, Epoch: q.GetEpoch()}, nil
}

// taken returns the position that a client has taken over and may note.
//
// guard:agent-consumer. Of the clients that take one position over through one agent, only the last may note it.
//
//mutant:replace q.GetEpoch() < uint64(c.Epoch()) => false
func (s *Server) taken(l *log, q *agentpb.ConsumerRequest) (*reader.Consumer, error) {
	s.mu.Lock()
	c := s.consumers[[2]string{l.url, q.GetName()}]
	s.mu.Unlock()
	switch {
	case q.GetEpoch() == 0:
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("agent: the epoch is missing; send the one that came with the position"))
	case c == nil || q.GetEpoch() > uint64(c.Epoch()):
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("agent: the position %q was not taken over here in epoch %d; ask for it first, and go on there", q.GetName(), q.GetEpoch()))
	case q.GetEpoch() < uint64(c.Epoch()):
		return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("agent: the position %q was taken over in epoch %d, after this client's %d; ask for it again only if this client is to have it", q.GetName(), c.Epoch(), q.GetEpoch()))
	}
	return c, nil
}

// register reads a register, or sets it.
func (s *Server) register(ctx context.Context, q *agentpb.RegisterRequest) (*agentpb.RegisterResponse, error) {
	l, err := s.log(ctx, q.GetUrl())
	if err != nil {
		return nil, err
	}
	if q.Value != nil {
		r, err := register.Open(ctx, l.st, q.GetKey(), fence.NewToken(fence.Epoch(q.GetEpoch())), nil)
		if err == nil {
			err = r.Set(ctx, q.GetValue())
		}
		if err != nil {
			return nil, status(err)
		}
		return &agentpb.RegisterResponse{Epoch: q.GetEpoch(), Value: q.Value}, nil
	}
	st, err := register.Read(ctx, l.st, q.GetKey(), nil)
	if errors.Is(err, store.ErrNotFound) {
		return &agentpb.RegisterResponse{}, nil
	}
	if err != nil {
		return nil, status(err)
	}
	return &agentpb.RegisterResponse{Epoch: uint64(st.Epoch), Value: st.Value}, nil
}

// status says who leads, and where the log ends.
func (s *Server) status(ctx context.Context, q *agentpb.StatusRequest) (*agentpb.StatusResponse, error) {
	l, err := s.log(ctx, q.GetUrl())
	if err != nil {
		return nil, err
	}
	rec, err := s.leader(ctx, l)
	if err != nil && !errors.Is(err, leader.ErrNoLeader) {
		return nil, status(err)
	}
	w, _ := l.session()
	a := &agentpb.StatusResponse{Leader: rec.Holder, Epoch: uint64(rec.Epoch), State: string(rec.State), Here: w != nil}
	r, err := s.open(ctx, l)
	if err != nil {
		return nil, status(err)
	}
	snap, err := r.Snapshot(ctx, &reader.SnapshotOptions{Unpinned: true})
	if err != nil {
		return nil, status(err)
	}
	a.First, a.End, a.Cursor = snap.First(), snap.End(), snap.Cursor()
	return a, status(snap.Close(ctx))
}

// check promises that the session of this server leads for some time.
func (s *Server) check(ctx context.Context, q *agentpb.CheckRequest) (*agentpb.CheckResponse, error) {
	l, err := s.log(ctx, q.GetUrl())
	if err != nil {
		return nil, err
	}
	w, _ := l.session()
	if w == nil || q.GetEpoch() != 0 && uint64(w.Epoch()) != q.GetEpoch() {
		return nil, connect.NewError(connect.CodeAborted, fmt.Errorf("agent: no session here leads %s in epoch %d; stop what only a leader may do", l.url, q.GetEpoch()))
	}
	if err := w.Check(time.Duration(q.GetNeedMillis()) * time.Millisecond); err != nil {
		if errors.Is(err, leader.ErrShort) {
			return nil, connect.NewError(connect.CodeFailedPrecondition, err)
		}
		return nil, status(err)
	}
	return &agentpb.CheckResponse{RemainingMillis: uint32(w.Remaining().Milliseconds())}, nil
}

// files lists the live files of the table.
func (s *Server) files(ctx context.Context, q *agentpb.FilesRequest, out *connect.ServerStream[agentpb.FilesResponse]) error {
	l, err := s.log(ctx, q.GetUrl())
	if err != nil {
		return err
	}
	r, err := s.open(ctx, l)
	if err != nil {
		return status(err)
	}
	snap, err := r.Snapshot(ctx, &reader.SnapshotOptions{Name: "fencepost agent"})
	if err != nil {
		return status(err)
	}
	defer func() { _ = snap.Close(context.WithoutCancel(ctx)) }()
	for f, err := range snap.Files(ctx) {
		if err == nil {
			err = out.Send(&agentpb.FilesResponse{Key: f.Key, Size: f.Size, Crc32C: f.CRC32C, Records: f.Records, Meta: f.Meta})
		}
		if err != nil {
			return status(err)
		}
	}
	return nil
}
