package agent

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/fence"
)

// announce is what the lock of a log says of this server.
func (s *Server) announce(l *log) string {
	a := s.opts.Announce
	if a.Tail != "" {
		a.Token = l.token
	}
	return a.String()
}

// tail tells a reader what a session of this server acknowledges.
func (s *Server) tail(ctx context.Context, q *agentpb.TailRequest, out *connect.ServerStream[agentpb.TailResponse]) error {
	l, err := s.log(ctx, q.GetUrl())
	if err != nil {
		return err
	}
	at := fence.Position{Epoch: fence.Epoch(q.GetEpoch()), Seq: q.GetSeq()}
	err = l.feed.Tail(ctx, at, func(object []byte) error { return out.Send(&agentpb.TailResponse{Object: object}) })
	switch {
	case errors.Is(err, push.ErrBehind):
		return connect.NewError(connect.CodeOutOfRange, err)
	case errors.Is(err, push.ErrIdle), errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return status(err)
}

// tokenLog is the key of the log whose token a reader has, in the context of a request.
type tokenLog struct{}

// Readers returns the handler for readers of other processes, which have read the token in the log's lock. It serves Tail and
// nothing else. Serve it with TLS: push.NewIdentity has a certificate.
func (s *Server) Readers() http.Handler {
	at := "/" + Service + "/Tail"
	tail := connect.NewServerStreamHandlerSimple(at, func(ctx context.Context, q *agentpb.TailRequest, out *connect.ServerStream[agentpb.TailResponse]) error {
		q.Url, _ = ctx.Value(tokenLog{}).(string)
		return s.tail(ctx, q, out)
	}, connect.WithReadMaxBytes(1<<10))
	readers := make(chan struct{}, s.opts.Readers)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// guard:agent-reader. Who has a log's token for readers is told what that log's leader acknowledges, and may do nothing else.
		//
		//mutant:replace !known || r.URL.Path != at => !known && at == ""
		l, known := s.reads(r)
		if !known || r.URL.Path != at {
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnauthenticated, errors.New("agent: readers need the token of the log's lock, and may only send Tail; read the lock again")))
			return
		}
		select {
		case readers <- struct{}{}:
			defer func() { <-readers }()
		default:
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("agent: %d readers are told already; read in the store", s.opts.Readers)))
			return
		}
		s.serve(w, r.WithContext(context.WithValue(r.Context(), tokenLog{}, l)), tail)
	})
}

// reads returns the URL of the log whose token a request has.
func (s *Server) reads(r *http.Request) (url string, known bool) {
	got := []byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.logs {
		if subtle.ConstantTimeCompare([]byte(l.token), got) == 1 {
			url, known = l.url, true
		}
	}
	return url, known
}

// push is the source of the log's readers here: a session of this server, or the leader that the lock names.
func (l *log) push(c clock.Clock) func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
	other := push.Source(l.st, c)
	return func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
		if w, _ := l.session(); w == nil || w.Epoch() != at.Epoch {
			return other(ctx, at)
		}
		return func(yield func([]byte) bool) {
			stop := errors.New("agent: the reader is done")
			_ = l.feed.Tail(ctx, at, func(object []byte) error {
				if !yield(bytes.Clone(object)) {
					return stop
				}
				return nil
			})
		}
	}
}
