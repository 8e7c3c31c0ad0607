package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
)

// An agent of this machine and user that leads commits for others: the same checks, the same answers, and it leads on.
//
// guard:commit-socket. Without this check: root commits to a log whose lock somebody else may write; the lock names a socket of
// that user, who says that all is committed.
func TestCommitThroughTheAgent(t *testing.T) {
	url, dir := newLog(t, fileURL(t)), filepath.Join(t.TempDir(), "own")
	sock := filepath.Join(dir, "agent.sock")
	c := command(t, "agent", "--lead", "--listen", "unix:"+sock, url)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	appends := func() bool {
		status, _ := ask(t, overSocket(sock), "http://agent", "Append", `{"records":["YQ=="]}`, "")
		return status == 200
	}
	eventually(t, "the agent leads", appends)
	type doc struct {
		Committed    bool
		Files, Epoch int
		Cursor       string
	}
	two := parquetFile(t, 2)
	for _, cursor := range []string{"1", "2"} {
		if d := parsed[doc](t, "commit", "--json", "--cursor", cursor, url, two, parquetFile(t, 3)); !d.Committed || d.Files != 2 || d.Epoch != 1 || d.Cursor != cursor {
			t.Errorf("%+v", d)
		}
		if d := parsed[doc](t, "commit", "--json", "--cursor", cursor, url, two); d.Committed || d.Files != 0 || d.Epoch != 1 {
			t.Errorf("%+v", d)
		}
	}
	for name, a := range map[string]struct {
		args []string
		says string
	}{
		"no Parquet":     {[]string{url, writeFile(t, "a\n")}, "input: "},
		"no rows":        {[]string{url, parquetFile(t, 0)}, "no rows"},
		"a lower cursor": {[]string{"--cursor", "1", url, two}, "must not go down"},
	} {
		if r := run(t, "", append([]string{"commit"}, a.args...)...); r.status != 1 || !strings.Contains(r.err, a.says) {
			t.Errorf("%s: status %d: %s", name, r.status, r.err)
		}
	}
	if rows := liveRows(t, url); rows != 10 || !appends() {
		t.Errorf("the table has %d rows", rows)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if r := run(t, "", "commit", url, two); r.status != 75 {
		t.Errorf("through a socket that others may replace: status %d: %s", r.status, r.err)
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if r := run(t, "", "commit", url, two); r.status != 0 {
		t.Errorf("after the agent: status %d: %s", r.status, r.err)
	}
}

// guard:agent-paths. Without this check: a client of another machine has the token for appends; it names a file of the agent's
// machine, and reads it as a file of the table.
func TestAgentOnTCPReadsNoFiles(t *testing.T) {
	url, token := newLog(t, memURL(t)), writeFile(t, "one\n")
	address, _, _ := background(t, nil, "agent", "--lead", "--listen", "127.0.0.1:0", "--token-file", token, url)
	var err error
	eventually(t, "the agent leads", func() bool {
		c := connect.NewClient[agentpb.CommitRequest, agentpb.CommitResponse](http.DefaultClient, address+"/"+agent.Service+"/Commit").CallClientStream(t.Context())
		c.RequestHeader().Set("Authorization", "Bearer one")
		_ = c.Send(&agentpb.CommitRequest{Message: &agentpb.CommitRequest_Commit{Commit: &agentpb.Commit{Paths: []string{parquetFile(t, 1)}}}})
		_, err = c.CloseAndReceive()
		return connect.CodeOf(err) != connect.CodeFailedPrecondition
	})
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "reads no files of its machine") {
		t.Error(err)
	}
}
