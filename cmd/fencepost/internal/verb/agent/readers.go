package agent

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/netutil"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// readers is where the agent tells readers of other processes.
type readers struct {
	at   string
	most int // connections at once; more wait
	l    net.Listener
}

// mostReaders is a little more than how many are told at once.
const mostReaders = 4200

// listen listens for readers if that is asked for, and returns what the locks say.
func (r *readers) listen(ctx context.Context, agent *listen) (push.Announcement, error) {
	var a push.Announcement
	if path := agent.path(); path != "" {
		path, err := filepath.Abs(path)
		if err != nil {
			return a, err
		}
		host, err := os.Hostname()
		if err != nil {
			return a, err
		}
		a.Agent, a.Host = "unix:"+path, host
	}
	if r.at == "" {
		return a, nil
	}
	host, _, err := net.SplitHostPort(r.at)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return a, kit.Usage("--readers is %q; write the address under which readers reach this machine, such as 10.0.0.7:7401", r.at)
	}
	id, err := push.NewIdentity()
	if err != nil {
		return a, err
	}
	n, err := new(net.ListenConfig).Listen(ctx, "tcp", r.at)
	if err != nil {
		return a, kit.Usage("--readers %s: %v; write an address of this machine, such as 10.0.0.7:7401", r.at, err)
	}
	_, port, err := net.SplitHostPort(n.Addr().String()) // it may have been 0
	if err != nil {
		return a, err
	}
	a.Tail, a.Cert = net.JoinHostPort(host, port), id.Cert
	r.l = tls.NewListener(netutil.LimitListener(n, cmp.Or(r.most, mostReaders)), id.Config)
	return a, nil
}

// serve tells readers until close is called.
func (r *readers) serve(a *agent.Server, log *zap.Logger) (stop func()) {
	if r.l == nil {
		return func() {}
	}
	s := &http.Server{Handler: a.Readers(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: zap.NewStdLog(log)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(r.l)
	}()
	return func() {
		_ = s.Close()
		<-ended
	}
}

// upload is what Commit does with paths: over a unix socket every client is this user.
func (p *serving) upload() func(ctx context.Context, st store.Store, w *writer.Writer, path string, values map[string]string) (manifest.File, error) {
	// guard:agent-paths. Only over a unix socket, where each client is the agent's own user, does the agent read files that a client
	// names.
	//
	//mutant:replace p.path() == "" => false
	if p.path() == "" {
		return nil
	}
	return func(ctx context.Context, st store.Store, w *writer.Writer, path string, values map[string]string) (manifest.File, error) {
		return p.Uploader(st, nil)(ctx, w, path, values)
	}
}
