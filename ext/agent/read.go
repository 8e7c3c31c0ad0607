package agent

import (
	"context"
	"errors"
	"fmt"
	"iter"
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
		r, err := l.open(ctx)
		if err != nil {
			return status(err)
		}
		from := reader.Oldest
		if q.GetConsumer() != "" {
			c, err := s.take(ctx, l, r, q.GetConsumer())
			if err != nil {
				return status(err)
			}
			if next, ok := c.Next(); ok {
				from = next
			}
		}
		if q.From != nil {
			from = q.GetFrom()
		}
		if !follow {
			return status(send(ctx, func(ctx context.Context) iter.Seq2[reader.Record, error] { return r.Read(ctx, from) }, out))
		}
		err = send(ctx, func(ctx context.Context) iter.Seq2[reader.Record, error] { return r.Tail(ctx, from) }, out)
		if errors.Is(err, context.Canceled) {
			return connect.NewError(connect.CodeUnavailable, errors.New("agent: it is about to end; go on at another one"))
		}
		return status(err)
	}
}

// send sends records, many in a message if they come at once.
func send(ctx context.Context, records func(context.Context) iter.Seq2[reader.Record, error], out *connect.ServerStream[agentpb.ReadResponse]) error {
	ctx, cancel := context.WithCancel(ctx)
	found := make(chan reader.Record, batchRecords)
	var failed error
	go func() {
		defer close(found)
		for rec, err := range records(ctx) {
			if failed = err; err != nil {
				return
			}
			select {
			case found <- rec:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { // the reader has ended before the handler returns
		cancel()
		for range found {
		}
	}()
	for rec := range found {
		var batch agentpb.ReadResponse
		for size, more := 0, true; more; {
			batch.Records = append(batch.Records, &agentpb.Record{Offset: rec.Offset, Value: rec.Value, UnixNanos: rec.Time.UnixNano()})
			if size += len(rec.Value); size >= batchBytes || len(batch.GetRecords()) >= batchRecords {
				break
			}
			select {
			case rec, more = <-found:
			default:
				more = false
			}
		}
		if err := out.Send(&batch); err != nil {
			return err
		}
	}
	return failed
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
		clear(s.consumers) // the others are taken over again when they are noted
	}
	s.consumers[[2]string{l.url, name}] = c
	return c, nil
}

// consumer takes a position over, or notes it.
func (s *Server) consumer(ctx context.Context, q *agentpb.ConsumerRequest) (*agentpb.ConsumerResponse, error) {
	l, err := s.log(ctx, q.GetUrl())
	if err != nil {
		return nil, err
	}
	r, err := l.open(ctx)
	if err != nil {
		return nil, status(err)
	}
	if q.Next == nil {
		c, err := s.take(ctx, l, r, q.GetName())
		if err != nil {
			return nil, status(err)
		}
		var a agentpb.ConsumerResponse
		if next, ok := c.Next(); ok {
			a.Next = &next
		}
		return &a, nil
	}
	s.mu.Lock()
	c := s.consumers[[2]string{l.url, q.GetName()}]
	s.mu.Unlock()
	if c == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("agent: the position %q was not taken over here; ask for it first, and go on there", q.GetName()))
	}
	if err := c.Commit(ctx, q.GetNext()); err != nil {
		return nil, status(err)
	}
	return &agentpb.ConsumerResponse{Next: q.Next}, nil
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
	r, err := l.open(ctx)
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
	r, err := l.open(ctx)
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
