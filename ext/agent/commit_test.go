package agent_test

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/internal/test/logtest"
)

// commits sends a file in two parts, and commits it.
func (s *served) commits(cursor string) (*agentpb.CommitResponse, error) {
	out := connect.NewClient[agentpb.CommitRequest, agentpb.CommitResponse](s.http, s.url+"/"+agent.Service+"/Commit", s.opts...).CallClientStream(s.t.Context())
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

// An agent that leads the log itself commits files for others: once for each cursor.
//
// guard:agent-commit-once. Without this check: a client does not hear that its commit was done, and tries it again with the same
// cursor; the table has the rows of its files twice.
func TestCommit(t *testing.T) {
	s := serve(t, logtest.New(t, logtest.Format(), nil), &agent.Options{})
	if _, err := s.commits("7"); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "nobody leads now") {
		t.Error(err)
	}
	lead := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		led := make(chan error, 1)
		go func() { led <- s.Lead(ctx, url) }()
		return func() {
			cancel()
			if err := <-led; err != nil {
				t.Error(err)
			}
		}
	}
	stop := lead()
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
	stop = lead()
	a, err = s.commits("7")
	for connect.CodeOf(err) == connect.CodeFailedPrecondition && err != nil {
		a, err = s.commits("7")
	}
	if err != nil || !a.GetAlready() {
		t.Errorf("%v, %v", a, err)
	}
	if n := s.table(); n != 1 {
		t.Errorf("the table has %d files", n)
	}
	stop()
}
