package agent_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// commits sends a file in two parts, and commits it.
func (s *served) commits(cursor string) (*agentpb.CommitResponse, error) {
	return s.commit(s.t.Context(), cursor)
}

func (s *served) commit(ctx context.Context, cursor string) (*agentpb.CommitResponse, error) {
	out := connect.NewClient[agentpb.CommitRequest, agentpb.CommitResponse](s.http, s.url+"/"+agent.Service+"/Commit", s.opts...).CallClientStream(ctx)
	for _, q := range []*agentpb.CommitRequest{
		{Url: url, Message: &agentpb.CommitRequest_File{File: &agentpb.Chunk{Data: []byte("PAR1")}}},
		{Message: &agentpb.CommitRequest_File{File: &agentpb.Chunk{Data: []byte("PAR1"), Last: true}}},
		{Message: &agentpb.CommitRequest_Commit{Commit: &agentpb.Commit{Cursor: []byte(cursor), Values: map[string]string{"day": "1"}}}},
	} {
		if out.Send(q) != nil {
			break
		}
	}
	a, err := out.CloseAndReceive()
	if err != nil {
		return nil, err
	}
	return a.Msg, nil
}

func (s *served) table() (live int) {
	s.t.Helper()
	files, err := connect.NewClient[agentpb.FilesRequest, agentpb.FilesResponse](s.http, s.url+"/"+agent.Service+"/Files", s.opts...).CallServerStream(s.t.Context(), connect.NewRequest(&agentpb.FilesRequest{Url: url}))
	if err != nil {
		s.t.Fatal(err)
	}
	for files.Receive() {
		live++
	}
	return live
}

// leads lets the agent lead the log itself, until stop is called.
func (s *served) leads() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	led := make(chan error, 1)
	go func() { led <- s.Lead(ctx, url) }()
	return func() {
		cancel()
		if err := <-led; err != nil {
			s.t.Error(err)
		}
	}
}

// until calls f until it no longer fails with a code.
func until(code connect.Code, f func() error) error {
	for {
		if err := f(); err == nil || connect.CodeOf(err) != code {
			return err
		}
	}
}

// An agent that leads the log itself commits files for others: once for each cursor.
//
// guard:agent-commit-once. Without this check: a client does not hear that its commit was done, and tries it again with the same
// cursor; the table has the rows of its files twice.
func TestCommit(t *testing.T) {
	s := serve(t, logtest.New(t, logtest.Format(), nil), &agent.Options{})
	if _, err := s.commits("7"); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "nobody leads now") {
		t.Error(err)
	}
	stop := s.leads()
	a, err := s.commits("7")
	for connect.CodeOf(err) == connect.CodeFailedPrecondition && err != nil { // it does not lead yet
		a, err = s.commits("7")
	}
	if err != nil || a.GetAlready() || a.GetEpoch() == 0 {
		t.Errorf("%v, %v", a, err)
	}
	if a, err := s.commits("7"); err != nil || !a.GetAlready() {
		t.Errorf("%v, %v", a, err)
	}
	if _, err := s.commits("6"); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Error(err)
	}
	stop()
	// The next term knows the cursor of the log.
	stop = s.leads()
	a, err = s.commits("7")
	for connect.CodeOf(err) == connect.CodeFailedPrecondition && err != nil {
		a, err = s.commits("7")
	}
	if err != nil || !a.GetAlready() {
		t.Errorf("%v, %v", a, err)
	}
	// An empty cursor clears it, and is none that the log has.
	for range 2 {
		if a, err := s.commits(""); err != nil || a.GetAlready() {
			t.Errorf("%v, %v", a, err)
		}
	}
	if n := s.table(); n != 3 {
		t.Errorf("the table has %d files", n)
	}
	stop()
}

// path commits a file of the agent's machine.
func (s *served) path(ctx context.Context, path string) error {
	out := connect.NewClient[agentpb.CommitRequest, agentpb.CommitResponse](s.http, s.url+"/"+agent.Service+"/Commit", s.opts...).CallClientStream(ctx)
	_ = out.Send(&agentpb.CommitRequest{Url: url, Message: &agentpb.CommitRequest_Commit{Commit: &agentpb.Commit{Paths: []string{path}}}})
	_, err := out.CloseAndReceive()
	return err
}

// A file that cannot be read, and whose client waits, keeps nobody else from committing, and the agent from leading again.
func TestCommitOfAFileThatHangs(t *testing.T) {
	reads := make(chan struct{}, 1)
	s := serve(t, logtest.New(t, logtest.Format(), nil), &agent.Options{
		Upload: func(ctx context.Context, _ store.Store, _ *writer.Writer, _ string, _ map[string]string) (manifest.File, error) {
			reads <- struct{}{}
			<-ctx.Done()
			return manifest.File{}, context.Cause(ctx)
		},
	})
	stop := s.leads()
	if err := until(connect.CodeFailedPrecondition, func() error { _, err := s.commits("1"); return err }); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.path(ctx, "x") }()
	<-reads
	if _, err := s.commits("2"); err != nil {
		t.Error(err)
	}
	stop()
	stop = s.leads()
	if err := until(connect.CodeFailedPrecondition, func() error { _, err := s.commits("3"); return err }); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("it was committed")
	}
	stop()
}

// Clients whose commits wait for a store that hangs, and leave, take nothing from others.
func TestCommitsThatHang(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	s := serveStore(t, l.Faulty.Client("agent"), &agent.Options{Streams: 2})
	stop := s.leads()
	if err := until(connect.CodeFailedPrecondition, func() error { _, err := s.commits("1"); return err }); err != nil {
		t.Fatal(err)
	}
	hangs, works := make(chan struct{}, 100), make(chan struct{})
	l.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
		if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "data/") {
			hangs <- struct{}{}
			<-works
		}
	})
	check := func() error {
		_, err := call[agentpb.CheckRequest, agentpb.CheckResponse](s, "Check", &agentpb.CheckRequest{Url: url})
		return err
	}
	for i := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- until(connect.CodeResourceExhausted, func() error { _, err := s.commit(ctx, fmt.Sprint(i+2)); return err })
		}()
		if i == 0 { // its request is served for some time yet
			<-hangs
			cancel()
			<-ended
			continue
		}
		for connect.CodeOf(check()) != connect.CodeResourceExhausted {
		}
		cancel()
		<-ended
		if err := until(connect.CodeResourceExhausted, check); err != nil {
			t.Error(err)
		}
	}
	close(works)
	stop()
}
