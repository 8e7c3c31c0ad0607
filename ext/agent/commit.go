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
			a, err := l.commit(ctx, w, m.Commit, func() ([]manifest.File, error) { return s.toAdd(ctx, l, w, c.files, m.Commit) })
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

// commit commits files once for each cursor.
//
// guard:agent-commit-once. A commit with the cursor that the log has already does nothing.
//
//mutant:replace bytes.Equal(l.cursor, m.Cursor) => bytes.Equal(l.cursor, m.Cursor) && false
func (l *log) commit(ctx context.Context, w *fencepost.Session, m *agentpb.Commit, files func() ([]manifest.File, error)) (*agentpb.CommitResponse, error) {
	l.commits.Lock()
	defer l.commits.Unlock()
	a := &agentpb.CommitResponse{Epoch: uint64(w.Epoch())}
	var opts []writer.AppendOption
	if m.Cursor != nil {
		if bytes.Equal(l.cursor, m.Cursor) {
			a.Already = true
			return a, w.Check(0)
		}
		was, bad := strconv.ParseUint(string(l.cursor), 10, 64)
		if now, err := strconv.ParseUint(string(m.Cursor), 10, 64); bad == nil && err == nil && now < was {
			return nil, fmt.Errorf("%w: the cursor %d comes after %d, which the log has already. Cursors that are numbers must not go down", session.ErrInvalid, now, was)
		}
		opts = append(opts, writer.Cursor(m.Cursor))
	}
	add, err := files()
	if err != nil {
		return nil, err
	}
	f, err := w.CommitFilesAsync(ctx, manifest.Edit{Add: add, Remove: m.GetRemove()}, opts...)
	if err != nil {
		return nil, err
	}
	// Whether or not the client waits: the next commit must know the cursor.
	if a.End, err = f.Wait(context.WithoutCancel(ctx)); err == nil && m.Cursor != nil {
		l.cursor = m.Cursor
	}
	return a, err
}
