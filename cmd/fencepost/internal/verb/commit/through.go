package commit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// agentTime is how long an agent may take to say that it leads.
const agentTime = 10 * time.Second

// errOther: no agent of this machine and user leads the log itself.
var errOther = errors.New("no agent here leads the log")

// through commits through the agent that leads, if it is one of this machine and user that leads for all its clients. Then it
// reads the files itself, and checks them as this process would. The error is errOther if there is none.
func (p *committing) through(ctx context.Context, st store.Store, url string) error {
	path, err := socketOf(ctx, st)
	if err != nil {
		return err
	}
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	at := "http://agent/" + agent.Service + "/"
	wait, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	is, err := connect.NewClient[agentpb.StatusRequest, agentpb.StatusResponse](h, at+"Status").CallUnary(wait, connect.NewRequest(&agentpb.StatusRequest{Url: url}))
	if err != nil || !is.Msg.GetHere() {
		return errOther
	}
	m := &agentpb.Commit{Values: p.commit.Values}
	for _, name := range p.commit.Files {
		if name, err = filepath.Abs(name); err != nil {
			return err
		}
		m.Paths = append(m.Paths, name)
	}
	if p.cursor != "" {
		m.Cursor = []byte(p.cursor)
	}
	out := connect.NewClient[agentpb.CommitRequest, agentpb.CommitResponse](h, at+"Commit").CallClientStream(ctx)
	_ = out.Send(&agentpb.CommitRequest{Url: url, Message: &agentpb.CommitRequest_Commit{Commit: m}}) // CloseAndReceive says why not
	a, err := out.CloseAndReceive()
	if err != nil {
		return refused(err)
	}
	p.doc = CommittedDoc{Committed: !a.Msg.GetAlready(), Epoch: fence.Epoch(a.Msg.GetEpoch()), End: a.Msg.GetEnd(), Cursor: p.cursor}
	if p.doc.Committed {
		p.doc.Files = len(p.commit.Files)
	}
	return nil
}

// refused tells what is certain after an error of the agent.
//
// guard:commit-through-unknown. A commit through an agent counts as not done only if the agent has said so.
//
//mutant:replace !connect.IsWireError(err) => false
func refused(err error) error {
	text := errors.New(strings.TrimPrefix(err.Error(), connect.CodeOf(err).String()+": "))
	if !connect.IsWireError(err) {
		return kit.Kind(kit.ErrOutcome, text)
	}
	switch connect.CodeOf(err) {
	case connect.CodeFailedPrecondition: // a client's session leads, or none any more
		return errOther
	case connect.CodeAborted:
		return kit.Kind(kit.ErrRefused, text)
	case connect.CodeUnknown, connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeCanceled:
		return kit.Kind(kit.ErrOutcome, text)
	}
	return text
}

// socketOf returns the socket of the agent that leads the log in st, if it is of this machine and user.
func socketOf(ctx context.Context, st store.Store) (path string, err error) {
	e, err := leader.New(st, fencepost.LockPrefix, nil)
	if err != nil {
		return "", err
	}
	rec, err := survey.Leader(ctx, e)
	if err != nil {
		if errors.Is(err, leader.ErrNoLeader) {
			err = errOther
		}
		return "", err
	}
	says := push.Parse(rec.Announce)
	host, err := os.Hostname()
	path, unix := strings.CutPrefix(says.Agent, "unix:")
	if err != nil || !unix || says.Host != host {
		return "", errOther
	}
	// Whoever may write the lock may name any socket; this user talks only to one that nobody else could have made.
	//
	at, err := filepath.EvalSymlinks(filepath.Dir(path)) // whoever owns a link may turn it elsewhere
	if err != nil {
		return "", errOther
	}
	// guard:commit-socket. A commit goes only through a socket in a directory of this user that nobody else may enter.
	//
	//mutant:replace dir.Mode().Perm()&0o077 != 0 || !kit.Mine(dir) => dir == nil
	dir, err := os.Lstat(at)
	if err != nil || dir.Mode().Perm()&0o077 != 0 || !kit.Mine(dir) {
		return "", errOther
	}
	return filepath.Join(at, filepath.Base(path)), nil
}
