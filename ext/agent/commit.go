package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// commit adds files to the table of a log that the server leads itself. A session's client has cursors of its own, so nobody
// commits beside it.
func (s *Server) commit(ctx context.Context, in *connect.ClientStream[agentpb.CommitRequest]) (*connect.Response[agentpb.CommitResponse], error) {
	if !in.Receive() {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.Join(errors.New("agent: there is no message"), in.Err()))
	}
	l, err := s.log(ctx, in.Msg().GetUrl())
	if err != nil {
		return nil, err
	}
	w, own := l.session()
	if w == nil || !own {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("agent: it does not lead %s for Commit: %s; start it with --lead, or send Lead", l.url, s.leads(ctx, l)))
	}
	c := &stream{}
	defer c.abort()
	for more := true; more; more = in.Receive() {
		switch m := in.Msg().GetMessage().(type) {
		case *agentpb.CommitRequest_File:
			err = c.write(ctx, w.Writer, m.File)
		case *agentpb.CommitRequest_Commit:
			if c.file != nil {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("agent: the last file is not complete; its last part must say so"))
			}
			a, err := s.commits(ctx, l, w, m.Commit, c.files)
			if err != nil {
				return nil, status(err)
			}
			return connect.NewResponse(a), nil
		}
		if err != nil {
			return nil, status(err)
		}
	}
	return nil, connect.NewError(connect.CodeInvalidArgument, errors.Join(errors.New(`agent: "commit" is missing, so nothing was done`), in.Err()))
}

// toAdd returns the files of a commit: those that were sent, and those that the agent reads itself.
func (s *Server) toAdd(ctx context.Context, l *log, w *fencepost.Session, sent []manifest.File, m *agentpb.Commit) ([]manifest.File, error) {
	for i := range sent {
		sent[i].Meta = m.GetValues()
		if i < len(m.GetRows()) {
			sent[i].Records = m.GetRows()[i]
		}
	}
	for _, path := range m.GetPaths() {
		if s.opts.Upload == nil {
			return nil, fmt.Errorf("%w: this agent reads no files of its machine; send them", session.ErrInvalid)
		}
		f, err := s.opts.Upload(ctx, l.st, w.Writer, path, m.GetValues())
		if err != nil {
			return nil, err
		}
		sent = append(sent, f)
	}
	return sent, nil
}

// commits commits files once for each cursor.
func (s *Server) commits(ctx context.Context, l *log, w *fencepost.Session, m *agentpb.Commit, sent []manifest.File) (*agentpb.CommitResponse, error) {
	a := &agentpb.CommitResponse{Epoch: uint64(w.Epoch())}
	// A file may be on a disk that hangs, so it is read while others commit.
	var err error
	if a.Already, err = l.has(ctx, m.Cursor); err != nil {
		return nil, err
	}
	var f writer.Future
	if !a.Already {
		add, err := s.toAdd(ctx, l, w, sent, m)
		if err != nil {
			return nil, err
		}
		if f, a.Already, err = l.commit(ctx, w, m, add); err != nil {
			return nil, err
		}
	}
	if a.Already {
		return a, w.Check(0)
	}
	a.End, err = s.settle(ctx, f)
	return a, err
}

// turn waits until no commit is in flight. The caller receives from l.commits when it is done.
func (l *log) turn(ctx context.Context) error {
	select {
	case l.commits <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// recovered notes the cursor of a log that the server leads itself.
func (l *log) recovered(ctx context.Context, w *fencepost.Session) error {
	err := l.turn(ctx)
	if err == nil {
		l.cursor = w.Recovered().Cursor
		<-l.commits
	}
	return err
}

// has reports whether the log has a cursor already.
func (l *log) has(ctx context.Context, cursor []byte) (bool, error) {
	if err := l.turn(ctx); err != nil {
		return false, err
	}
	defer func() { <-l.commits }()
	return l.compare(cursor)
}

// compare is has in a turn.
//
// guard:agent-commit-once. A commit with the cursor that the log has already does nothing.
//
//mutant:replace bytes.Equal(l.cursor, cursor) => bytes.Equal(l.cursor, cursor) && false
func (l *log) compare(cursor []byte) (already bool, err error) {
	if len(cursor) == 0 { // an empty one says nothing of where the client is
		return false, nil
	}
	if bytes.Equal(l.cursor, cursor) {
		return true, nil
	}
	was, bad := strconv.ParseUint(string(l.cursor), 10, 64)
	if now, err := strconv.ParseUint(string(cursor), 10, 64); bad == nil && err == nil && now < was {
		return false, fmt.Errorf("%w: the cursor %d comes after %d, which the log has already. Cursors that are numbers must not go down", session.ErrInvalid, now, was)
	}
	return false, nil
}

// commit sends one commit.
func (l *log) commit(ctx context.Context, w *fencepost.Session, m *agentpb.Commit, add []manifest.File) (f writer.Future, already bool, err error) {
	if err := l.turn(ctx); err != nil {
		return f, false, err
	}
	if already, err = l.compare(m.Cursor); err == nil && !already {
		var opts []writer.AppendOption
		if m.Cursor != nil {
			opts = append(opts, writer.Cursor(m.Cursor))
		}
		f, err = w.CommitFilesAsync(ctx, manifest.Edit{Add: add, Remove: m.GetRemove()}, opts...)
	}
	if err != nil || already {
		<-l.commits
		return f, already, err
	}
	go func() { // whether or not the client waits: the next commit must know the cursor
		defer func() { <-l.commits }()
		if _, err := f.Wait(context.Background()); err == nil && m.Cursor != nil {
			l.cursor = m.Cursor
		}
	}()
	return f, false, nil
}
