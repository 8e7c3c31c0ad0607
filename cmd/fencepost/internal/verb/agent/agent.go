// Package agent is the verb agent.
package agent

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/kit"
	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// stopTime is how long a hand-over takes at most: see fencepost.Run.
const stopTime = 30 * time.Second

type serving struct {
	*kit.Kit
	listen
	readers readers
	lead    bool
	streams int
	bytes   int64
}

// Command returns the verb.
func Command(k *kit.Kit) *cobra.Command {
	p := &serving{Kit: k}
	c := &cobra.Command{
		Use:   "agent [--listen ADDR] [--lead] [URL...]",
		Short: "serve logs to programs in any language, over a socket",
		Long: `Agent serves logs over gRPC, gRPC-Web, and JSON over HTTP. A stream of the method Lead is a
session: the agent leads the log for as long as the stream lasts and the client sends
something as often as it has promised. See docs/agent.md.

It listens on a unix socket in a directory that only this user may enter. With --listen
unix:PATH it makes that directory if it is not there; and it refuses one that others may
enter. With --listen ADDR:PORT it listens on TCP: then it needs --token-file, or
--tls-client-ca for clients with certificates, and the URLs of the logs. Files of tokens
and certificates are read again when they change. A request must name a --host, or the
address itself. Where other machines reach it, it needs --tls-cert too.

Without URLs, clients may name any log that this user may use. With --lead the agent leads
these logs itself, for clients that only send Append, such as curl.

With --readers ADDR:PORT it tells readers what is committed as soon as it is: cat --follow,
and readers of the Go library that have a source. The lock of each log says where, with the
fingerprint of a certificate and a token, which are new with each start. Who may read the
bucket may connect there, and may do nothing else.

At SIGTERM it hands over: each client is told, what it has sent is committed, and streams
end when another process has taken over, or at once if none waits.

It needs the rights of a writer, and those of a consumer for positions.`,
		Example: "fencepost agent s3://bucket/orders",
		Args:    kit.WantArgs(0, 1000),
	}
	fl := c.Flags()
	fl.StringVar(&p.Addr, "listen", "", "unix:PATH or ADDR:PORT (default unix:DIR/agent.sock in this user's own directory)")
	fl.BoolVar(&p.lead, "lead", false, "lead the logs itself, for Append")
	p.Flags(c)
	fl.StringVar(&p.readers.at, "readers", "", "`ADDR:PORT` of this machine, where readers are told what is committed")
	kit.CountVar(fl, &p.streams, "streams", 256, "how many requests are served at once")
	kit.BytesVar(fl, &p.bytes, "stream-bytes", "what a session may send before it is acknowledged (default 64 MiB)")
	election := k.Election(c)
	k.MetricsFlag(c, "metrics")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if p.lead && len(args) == 0 {
			return kit.Usage("--lead leads the logs that are named; give their URLs")
		}
		elect := election()
		if err := elect.Validate(); err != nil {
			return kit.Usage("%w", err)
		}
		return p.run(cmd.Context(), args, elect)
	}
	return c
}

func (p *serving) run(ctx context.Context, urls []string, elect leader.Options) error {
	if err := p.check(urls); err != nil {
		return err
	}
	elect.Hooks = p.Gauges.Leader("log", elect.Hooks)
	says, err := p.readers.listen(ctx, &p.listen)
	if err != nil {
		return err
	}
	a, err := agent.New(&agent.Options{
		Open: func(ctx context.Context, url string) (store.Store, error) { return p.Store(ctx, url, true) },
		Logs: urls, Hosts: p.names(), Token: p.Bearer(), Streams: p.streams, StreamBytes: p.bytes, Leader: elect, Logger: p.Log, Announce: says,
		Writer: writer.Options{Hooks: p.Gauges.Writer(writer.Hooks{})},
		Upload: p.upload(),
		Init:   func(url string) *manifest.InitOptions { return &manifest.InitOptions{Probe: p.Probing(url)} },
	})
	if err != nil {
		return kit.Usage("%w", err)
	}
	l, at, err := p.open(ctx)
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(p.Cert == "")
	s := &http.Server{
		Handler: own(a), ConnContext: peer, Protocols: protocols,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	p.Console.Note("serving at %s", at)
	defer p.readers.serve(a, p.Log)()
	leads, leading := errgroup.WithContext(ctx)
	if p.lead {
		for _, url := range urls {
			leads.Go(func() error { return a.Lead(leading, url) })
		}
	}
	select {
	case <-leading.Done():
	case err = <-served:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if a.Stop(stop) != nil {
		p.Console.Note("not all streams have ended after %v; they are cut off", stopTime)
	}
	led := leads.Wait()
	_ = s.Close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, led)
}

// peerUID is the key of the user of a connection.
type peerUID struct{}

// peer notes the user at the other end of a unix socket.
func peer(ctx context.Context, c net.Conn) context.Context {
	if uid, ok := uidOf(c); ok {
		return context.WithValue(ctx, peerUID{}, uid)
	}
	return ctx
}
