package agent_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// telling is an agent that tells readers.
type telling struct {
	*served
	says push.Announcement
}

// tells starts an agent for the log l that tells readers.
func tells(t *testing.T, l *logtest.Log, o *agent.Options) *telling {
	t.Helper()
	id, err := push.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	n, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.Announce = push.Announcement{Tail: n.Addr().String(), Cert: id.Cert}
	s := serve(t, l, o)
	h := &http.Server{Handler: s.Readers(), ReadHeaderTimeout: time.Minute}
	go func() { _ = h.Serve(tls.NewListener(n, id.Config)) }()
	t.Cleanup(func() { _ = h.Close() })
	return &telling{s, o.Announce}
}

// records follows the log, and sends what it reads. It counts the reader's requests.
func records(t *testing.T, l *logtest.Log, requests *atomic.Int64) <-chan reader.Record {
	t.Helper()
	st := store.Hooked(l.Mem, store.Hooks{Answered: func(store.Answer) { requests.Add(1) }}, nil)
	r, err := reader.Open(t.Context(), st, &reader.Options{Push: push.Source(st, nil), Settle: logtest.Quick})
	if err != nil {
		t.Fatal(err)
	}
	found, ended := make(chan reader.Record), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		defer close(found)
		for rec, err := range r.Tail(ctx, 0) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			select {
			case found <- rec:
			case <-ctx.Done():
				return
			}
		}
	}()
	return found
}

// A reader of another process is told at once, without a request of its own, and goes on at the next leader.
func TestReadersAreTold(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	a := tells(t, l, &agent.Options{})
	c := a.lead(t.Context(), &agentpb.Open{})
	c.want("leading")
	var requests atomic.Int64
	found := records(t, l, &requests)
	n := 0
	appends := func(c *lead) {
		c.append(fmt.Sprint(n+1), fmt.Sprint(n))
		if rec := <-found; string(rec.Value) != fmt.Sprint(n) || rec.Offset != uint64(n) {
			t.Fatalf("record %d is %d %q", n, rec.Offset, rec.Value)
		}
		n++
	}
	quiet := func(c *lead) bool {
		before := requests.Load()
		for range 10 {
			appends(c)
		}
		return requests.Load() == before
	}
	for tries := 0; !quiet(c); tries++ {
		if tries > 100000 {
			t.Fatal("the reader is never told")
		}
	}
	b := tells(t, l, &agent.Options{})
	d := b.lead(t.Context(), &agentpb.Open{})
	d.want("waiting")
	c.send(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Resign{Resign: true}})
	d.want("leading")
	for tries := 0; !quiet(d); tries++ {
		if tries > 100000 {
			t.Fatal("the reader is not told by the next leader")
		}
	}
	// The leader goes, and another one that tells nobody follows.
	if err := d.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	d.want("ended")
	e := serve(t, l, &agent.Options{}).lead(t.Context(), &agentpb.Open{})
	e.want("leading")
	appends(e)
	if err := e.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	e.want("ended")
}

// guard:agent-reader. Without this check: whoever may read the bucket, and so the lock, appends to the log; or whoever reaches
// the port reads it.
//
// guard:push-cert. Without this check: somebody takes the address over that the lock names; readers send that one their
// token, and take from it what the log never had.
func TestReadersWithoutTheKey(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	a := tells(t, l, &agent.Options{})
	c := a.lead(t.Context(), &agentpb.Open{})
	c.want("leading")
	rec, err := leaderOf(t, l)
	if err != nil {
		t.Fatal(err)
	}
	says := push.Parse(rec.Announce)
	if says.Tail != a.says.Tail || len(rec.Announce) > 512 || says.Token == "" {
		t.Fatalf("the lock says %q", rec.Announce)
	}
	for name, q := range map[string]struct {
		cert, token, method string
		code                connect.Code
	}{
		"all is right":    {says.Cert, says.Token, "Tail", 0},
		"no token":        {says.Cert, "", "Tail", connect.CodeUnauthenticated},
		"another token":   {says.Cert, says.Token[1:], "Tail", connect.CodeUnauthenticated},
		"another method":  {says.Cert, says.Token, "Status", connect.CodeUnauthenticated},
		"another machine": {strings.Repeat("A", len(says.Cert)), says.Token, "Tail", connect.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			h := &http.Client{Transport: &http.Transport{TLSClientConfig: push.Pinned(q.cert), ForceAttemptHTTP2: true}}
			defer h.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			r := connect.NewRequest(&agentpb.TailRequest{Epoch: uint64(rec.Epoch), Seq: 1})
			r.Header().Set("Authorization", "Bearer "+q.token)
			out, err := connect.NewClient[agentpb.TailRequest, agentpb.TailResponse](h, "https://"+says.Tail+"/"+agent.Service+"/"+q.method).CallServerStream(ctx, r)
			if err == nil && !out.Receive() {
				err = errors.Join(out.Err(), errors.New("nothing came"))
			}
			if err == nil && len(out.Msg().GetObject()) > 0 {
				t.Error(out.Msg())
			}
			if code := connect.CodeOf(err); err == nil && q.code != 0 || err != nil && code != q.code {
				t.Errorf("%v", err)
			}
		})
	}
	if err := c.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	c.want("ended")
}

func leaderOf(t *testing.T, l *logtest.Log) (leader.Record, error) {
	e, err := leader.New(l.Mem, fencepost.LockPrefix, nil)
	if err != nil {
		return leader.Record{}, err
	}
	return e.Leader(t.Context())
}
