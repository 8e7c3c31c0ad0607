package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// settling is how long the outcome of an append may take when the agent ends, or its client has left.
const settling = 15 * time.Second

// stream is a client of Lead.
type stream struct {
	*connect.BidiStream[agentpb.LeadRequest, agentpb.LeadResponse]
	stop func()

	mu      sync.Mutex
	stopped bool

	file  *writer.FileWriter // that is being sent
	files []manifest.File    // that are complete and not committed
}

// lead serves one session.
func (s *Server) lead(ctx context.Context, b *connect.BidiStream[agentpb.LeadRequest, agentpb.LeadResponse]) error {
	first, err := b.Receive()
	if err != nil {
		return status(err)
	}
	open := first.GetOpen()
	if open == nil {
		return connect.NewError(connect.CodeInvalidArgument, errors.New(`agent: the first message of Lead must be "open"`))
	}
	l, err := s.log(ctx, open.GetUrl())
	if err != nil {
		return err
	}
	if _, own := l.session(); own {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("agent: it leads %s itself; send Append, or start it without --lead", l.url))
	}
	c := &stream{BidiStream: b, stop: func() {
		if rc, ok := ctx.Value(controller{}).(*http.ResponseController); ok {
			_ = rc.SetReadDeadline(s.opts.Clock.Wall().Add(-time.Hour))
		}
	}}
	defer c.abort()
	o := &session.Options{Promise: time.Duration(open.GetPromiseSeconds()) * time.Second, NoWait: open.GetNoWait(), Upload: c.upload, Began: l.began, Clock: s.opts.Clock}
	return status(session.New(c, o).Lead(ctx, l.feed.Store(l.st), s.run(l)))
}

// run returns the options of one election.
func (s *Server) run(l *log) *fencepost.Options {
	elect, write := s.opts.Leader, s.opts.Writer
	elect.Identity = leader.DefaultIdentity() // several clients may want one log
	elect.Announce = s.announce(l)
	acknowledged := write.Hooks.Acknowledged
	write.Hooks.Acknowledged = func(a writer.Acknowledgement) {
		l.feed.Acknowledged(a)
		if acknowledged != nil {
			acknowledged(a)
		}
	}
	if s.opts.Init != nil {
		write.Init = s.opts.Init(l.url)
	}
	return &fencepost.Options{Leader: &elect, Writer: &write, Clock: s.opts.Clock, Logger: s.opts.Logger}
}

// Lead leads a log on behalf of all clients that send Append, again and again, until ctx ends.
func (s *Server) Lead(ctx context.Context, url string) error {
	l, err := s.log(ctx, url)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.own = true
	l.mu.Unlock()
	return fencepost.Run(ctx, l.feed.Store(l.st), s.run(l), func(ctx context.Context, w *fencepost.Session) error {
		if err := l.recovered(ctx, w); err != nil {
			return err
		}
		defer l.began(w)()
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// append appends to a log that the server leads itself.
func (s *Server) append(ctx context.Context, r *agentpb.AppendRequest) (*agentpb.AppendResponse, error) {
	l, err := s.log(ctx, r.GetUrl())
	if err != nil {
		return nil, err
	}
	w, own := l.session()
	if w == nil || !own {
		return nil, connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("agent: it does not lead %s for Append: %s; start it with --lead, or send Lead", l.url, s.leads(ctx, l)))
	}
	if len(r.GetRecords()) == 0 {
		return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("agent: there are no records"))
	}
	f, err := w.AppendAsync(ctx, r.GetRecords())
	if err != nil {
		return nil, status(err)
	}
	first, err := s.settle(ctx, f)
	if err != nil {
		return nil, status(err)
	}
	return &agentpb.AppendResponse{First: first, End: first + uint64(len(r.GetRecords())), Epoch: uint64(w.Epoch())}, nil
}

// settle waits for an outcome. At the end of the agent it is known soon.
func (s *Server) settle(ctx context.Context, f writer.Future) (first uint64, err error) {
	wait, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	defer context.AfterFunc(ctx, func() {
		_ = clock.Sleep(wait, s.opts.Clock, settling)
		cut(context.Cause(ctx))
	})()
	return f.Wait(wait)
}

// leads says who leads a log.
func (s *Server) leads(ctx context.Context, l *log) string {
	rec, err := s.leader(ctx, l)
	switch {
	case errors.Is(err, leader.ErrNoLeader):
		return "nobody leads now"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("%s leads in epoch %d", rec.Holder, rec.Epoch)
}

func (s *Server) leader(ctx context.Context, l *log) (leader.Record, error) {
	e, err := leader.New(l.st, fencepost.LockPrefix, &leader.Options{Clock: s.opts.Clock})
	if err != nil {
		return leader.Record{}, err
	}
	return e.Leader(ctx)
}

// Stop implements [session.Client].
func (c *stream) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.stopped = true
		c.stop()
	}
}

// Receive implements [session.Client].
func (c *stream) Receive() (session.Message, error) {
	r, err := c.BidiStream.Receive()
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.stopped || errors.Is(err, io.EOF) {
			return session.Message{}, io.EOF
		}
		if code := connect.CodeOf(err); code == connect.CodeResourceExhausted || code == connect.CodeInvalidArgument {
			err = fmt.Errorf("%w: %w", session.ErrInvalid, err)
		}
		return session.Message{}, err
	}
	switch m := r.GetMessage().(type) {
	case *agentpb.LeadRequest_Append:
		return session.Message{Records: m.Append.GetRecords(), Cursor: m.Append.Cursor}, nil
	case *agentpb.LeadRequest_File:
		return session.Message{Do: func(ctx context.Context, w *writer.Writer) error { return c.write(ctx, w, m.File) }}, nil
	case *agentpb.LeadRequest_Commit:
		return c.commit(m.Commit)
	case *agentpb.LeadRequest_Flush:
		return session.Message{Flush: true}, nil
	case *agentpb.LeadRequest_Progress:
		return session.Message{}, nil
	case *agentpb.LeadRequest_Resign:
		return session.Message{Resign: true}, nil
	case *agentpb.LeadRequest_Open:
		return session.Message{}, fmt.Errorf(`%w: "open" comes only once; use a stream for each log`, session.ErrInvalid)
	}
	return session.Message{}, fmt.Errorf("%w: it has none of the known members; is the client newer than the agent?", session.ErrInvalid)
}

// Send implements [session.Client].
func (c *stream) Send(e session.Event) error {
	r := &agentpb.LeadResponse{
		Event: string(e.Kind), Epoch: uint64(e.Epoch), Holder: e.Holder, Cursor: e.Cursor, First: e.First, End: e.End, Appends: uint32(e.Appends),
		Code: string(e.Code), Why: e.Why, Unknown: uint32(e.Unknown), NotCommitted: uint32(e.NotCommitted),
	}
	if !e.Until.IsZero() {
		r.Until = e.Until.UTC().Format(time.RFC3339)
	}
	return c.BidiStream.Send(r)
}

// write adds a part of a file.
func (c *stream) write(ctx context.Context, w *writer.Writer, part *agentpb.Chunk) error {
	if c.file == nil {
		// Not ctx: that ends with this message. The writer aborts the file at its end.
		f, err := w.CreateFile(context.WithoutCancel(ctx), ".parquet", 0)
		if err != nil {
			return err
		}
		c.file = f
	}
	if _, err := c.file.Write(part.GetData()); err != nil {
		return err
	}
	if !part.GetLast() {
		return nil
	}
	err := c.file.Close()
	if err == nil {
		c.files = append(c.files, c.file.File())
	}
	c.file = nil
	return err
}

// commit names the files that were sent by their numbers.
func (c *stream) commit(m *agentpb.Commit) (session.Message, error) {
	commit := &session.Commit{Values: m.GetValues(), Remove: m.GetRemove()}
	return session.Message{Commit: commit, Cursor: m.Cursor, Do: func(context.Context, *writer.Writer) error {
		if c.file != nil {
			return fmt.Errorf("%w: the last file is not complete; its last part must say so", session.ErrInvalid)
		}
		for i := range c.files {
			if i < len(m.GetRows()) {
				c.files[i].Records = m.GetRows()[i]
			}
			commit.Files = append(commit.Files, strconv.Itoa(i))
		}
		return nil
	}}, nil
}

// upload returns a file that was sent.
func (c *stream) upload(_ context.Context, _ *writer.Writer, name string, values map[string]string) (manifest.File, error) {
	i, err := strconv.Atoi(name)
	if err != nil {
		return manifest.File{}, err
	}
	f := c.files[i]
	f.Meta = values
	if i == len(c.files)-1 {
		c.files = nil
	}
	return f, nil
}

// abort ends a file that is not complete.
func (c *stream) abort() {
	if c.file != nil {
		c.file.Abort()
	}
}
