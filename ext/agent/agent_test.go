package agent_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"

	"github.com/fencepost/fencepost/ext/agent"
	"github.com/fencepost/fencepost/ext/agent/agentpb"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// served is an agent that listens on this machine.
type served struct {
	*agent.Server
	t    *testing.T
	url  string
	http *http.Client
	opts []connect.ClientOption
}

const url = "mem://log"

// serve starts an agent for the log l.
func serve(t *testing.T, l *logtest.Log, o *agent.Options) *served {
	t.Helper()
	return serveStore(t, l.Mem, o)
}

func serveStore(t *testing.T, st store.Store, o *agent.Options) *served {
	t.Helper()
	o.Open = func(context.Context, string) (store.Store, error) { return st, nil }
	o.Leader.Validity, o.Writer.Settle = 3*time.Second, logtest.Quick
	a, err := agent.New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewUnstartedServer(a)
	h.Config.Protocols = new(http.Protocols)
	h.Config.Protocols.SetHTTP1(true)
	h.Config.Protocols.SetUnencryptedHTTP2(true)
	h.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := a.Stop(ctx); err != nil {
			t.Error(err)
		}
		h.Close()
	})
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &served{Server: a, t: t, url: h.URL, http: &http.Client{Transport: &http.Transport{Protocols: &p}}}
}

func call[Q, A any](s *served, method string, q *Q) (*A, error) {
	c := connect.NewClient[Q, A](s.http, s.url+"/"+agent.Service+"/"+method, s.opts...)
	r, err := c.CallUnary(s.t.Context(), connect.NewRequest(q))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

type lead struct {
	t *testing.T
	*connect.BidiStreamForClient[agentpb.LeadRequest, agentpb.LeadResponse]
}

// lead opens a session.
func (s *served) lead(ctx context.Context, o *agentpb.Open) *lead {
	s.t.Helper()
	c := connect.NewClient[agentpb.LeadRequest, agentpb.LeadResponse](s.http, s.url+"/"+agent.Service+"/Lead", s.opts...)
	l := &lead{s.t, c.CallBidiStream(ctx)}
	if o.Url == "" {
		o.Url = url
	}
	l.send(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Open{Open: o}})
	return l
}

func (l *lead) send(r *agentpb.LeadRequest) {
	if err := l.Send(r); err != nil && !errors.Is(err, io.EOF) {
		l.t.Error(err)
	}
}

func (l *lead) append(cursor string, records ...string) {
	a := &agentpb.Append{Cursor: []byte(cursor)}
	for _, r := range records {
		a.Records = append(a.Records, []byte(r))
	}
	l.send(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Append{Append: a}})
}

// want waits for an event, and leaves out those before.
func (l *lead) want(event string) *agentpb.LeadResponse {
	l.t.Helper()
	for {
		e, err := l.Receive()
		if err != nil {
			l.t.Fatalf("no event %s: %v", event, err)
		}
		if e.GetEvent() == event {
			return e
		}
	}
}

// ended returns the status of the stream.
func (l *lead) ended() error {
	for {
		if _, err := l.Receive(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// Each of the three protocols does all of it.
func TestProtocols(t *testing.T) {
	for name, opts := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}, "json": {connect.WithProtoJSON()}} {
		t.Run(name, func(t *testing.T) {
			l := logtest.New(t, logtest.Format(), nil)
			s := serve(t, l, &agent.Options{})
			s.opts = opts
			c := s.lead(t.Context(), &agentpb.Open{PromiseSeconds: 10})
			first := c.want("leading")
			c.append("1", "a", "b")
			c.send(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Flush{Flush: true}})
			if e := c.want("flushed"); e.GetEnd() != 2 {
				t.Errorf("%v", e)
			}
			if a, err := call[agentpb.CheckRequest, agentpb.CheckResponse](s, "Check", &agentpb.CheckRequest{Url: url, Epoch: first.GetEpoch(), NeedMillis: 10}); err != nil || a.GetRemainingMillis() == 0 {
				t.Errorf("%v, %v", a, err)
			}
			// A file, in two parts.
			for i, part := range []string{"PAR1", "PAR1"} {
				c.send(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_File{File: &agentpb.Chunk{Data: []byte(part), Last: i == 1}}})
			}
			c.send(&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Commit{Commit: &agentpb.Commit{Values: map[string]string{"day": "1"}, Rows: []uint64{7}, Cursor: []byte("2")}}})
			if e := c.want("committed"); e.GetEnd() != 2 || string(e.GetCursor()) != "2" {
				t.Errorf("%v", e)
			}
			st, err := call[agentpb.StatusRequest, agentpb.StatusResponse](s, "Status", &agentpb.StatusRequest{Url: url})
			if err != nil || st.GetEnd() != 2 || !st.GetHere() || st.GetEpoch() != first.GetEpoch() || string(st.GetCursor()) != "2" {
				t.Errorf("%v, %v", st, err)
			}
			if err := c.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			c.want("ended")
			if err := c.ended(); err != nil {
				t.Error(err)
			}
			if _, err := call[agentpb.CheckRequest, agentpb.CheckResponse](s, "Check", &agentpb.CheckRequest{Url: url, Epoch: first.GetEpoch()}); connect.CodeOf(err) != connect.CodeAborted {
				t.Errorf("%v", err)
			}
			files, err := connect.NewClient[agentpb.FilesRequest, agentpb.FilesResponse](s.http, s.url+"/"+agent.Service+"/Files", s.opts...).CallServerStream(t.Context(), connect.NewRequest(&agentpb.FilesRequest{Url: url}))
			if err != nil || !files.Receive() || files.Msg().GetSize() != 8 || files.Msg().GetRecords() != 7 || files.Msg().GetMeta()["day"] != "1" {
				t.Errorf("%v, %v", files, err)
			}
			files.Close()
			s.reads(l)
		})
	}
}

// reads follows the log, and keeps a position.
func (s *served) reads(l *logtest.Log) {
	t := s.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	follow, err := connect.NewClient[agentpb.ReadRequest, agentpb.ReadResponse](s.http, s.url+"/"+agent.Service+"/Follow", s.opts...).CallServerStream(ctx, connect.NewRequest(&agentpb.ReadRequest{Url: url, Consumer: "c"}))
	if err != nil {
		t.Fatal(err)
	}
	defer follow.Close()
	var got []string
	var epoch uint64
	next := func(n int) {
		for len(got) < n && follow.Receive() {
			epoch = max(epoch, follow.Msg().GetEpoch())
			for _, r := range follow.Msg().GetRecords() {
				got = append(got, string(r.GetValue()))
			}
		}
	}
	next(2)
	consumer := func(epoch uint64, at *uint64) (*agentpb.ConsumerResponse, error) {
		return call[agentpb.ConsumerRequest, agentpb.ConsumerResponse](s, "Consumer", &agentpb.ConsumerRequest{Url: url, Name: "c", Epoch: epoch, Next: at})
	}
	if w, err := consumer(epoch, new(uint64(2))); err != nil || w.GetNext() != 2 || w.GetEpoch() != epoch {
		t.Errorf("%v, %v", w, err)
	}
	c := s.lead(t.Context(), &agentpb.Open{})
	c.want("leading")
	c.append("3", "c")
	next(3)
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
	c.CloseRequest()
	if err := c.ended(); err != nil {
		t.Error(err)
	}
	if w, err := consumer(0, nil); err != nil || w.GetNext() != 2 || w.GetEpoch() <= epoch {
		t.Errorf("%v, %v", w, err)
	}
	// A register refuses a lower epoch.
	for _, c := range []struct {
		epoch uint64
		code  connect.Code
	}{{5, 0}, {4, connect.CodeAborted}} {
		_, err := call[agentpb.RegisterRequest, agentpb.RegisterResponse](s, "Register", &agentpb.RegisterRequest{Url: url, Key: "x", Epoch: c.epoch, Value: []byte{byte(c.epoch)}})
		if (err == nil) != (c.code == 0) || err != nil && connect.CodeOf(err) != c.code {
			t.Errorf("epoch %d: %v", c.epoch, err)
		}
	}
	if r, err := call[agentpb.RegisterRequest, agentpb.RegisterResponse](s, "Register", &agentpb.RegisterRequest{Url: url, Key: "x"}); err != nil || r.GetEpoch() != 5 || !bytes.Equal(r.GetValue(), []byte{5}) {
		t.Errorf("%v, %v", r, err)
	}
}

// curl needs no more than this for what is no stream.
func TestPlainJSON(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	s := serve(t, l, &agent.Options{Logs: []string{url}})
	ctx, stop := context.WithCancel(t.Context())
	led := make(chan error, 1)
	go func() { led <- s.Lead(ctx, url) }()
	defer func() {
		stop()
		if err := <-led; err != nil {
			t.Error(err)
		}
	}()
	for deadline := time.Now().Add(20 * time.Second); ; {
		r, err := http.Post(s.url+"/"+agent.Service+"/Append", "application/json", strings.NewReader(`{"records":["YQ=="]}`))
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if r.StatusCode == http.StatusOK {
			if !strings.Contains(string(body), `"end":"1"`) {
				t.Errorf("%s", body)
			}
			break
		}
		if !strings.Contains(string(body), "it does not lead") || time.Now().After(deadline) {
			t.Fatalf("%d: %s", r.StatusCode, body)
		}
	}
	if got := l.Contents(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
	// Nobody gets a session of a log that the agent leads itself.
	if err := s.lead(t.Context(), &agentpb.Open{}).ended(); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "send Append") {
		t.Error(err)
	}
}

func TestReflection(t *testing.T) {
	s := serve(t, logtest.New(t, logtest.Format(), nil), &agent.Options{})
	stream := grpcreflect.NewClient(s.http, s.url, connect.WithGRPC()).NewStream(t.Context())
	names, err := stream.ListServices()
	if err != nil || !slices.Contains(names, agent.Service) {
		t.Errorf("%v, %v", names, err)
	}
	stream.Close()
	r, err := http.Post(s.url+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	r.Body.Close()
	if !strings.Contains(string(body), "SERVING") {
		t.Errorf("%s", body)
	}
}

// What a client does wrong is said to it, with what to do; others notice nothing.
func TestBadClients(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	s := serve(t, l, &agent.Options{Logs: []string{url, "mem://other"}, MessageBytes: 1 << 20})
	good := s.lead(t.Context(), &agentpb.Open{Url: "mem://other"}) // the same store: the candidates below wait for it
	good.want("leading")
	for name, c := range map[string]struct {
		first *agentpb.LeadRequest
		then  *agentpb.LeadRequest
		code  connect.Code
		says  string
	}{
		"no open":         {&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Flush{Flush: true}}, nil, connect.CodeInvalidArgument, `must be "open"`},
		"another log":     {&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Open{Open: &agentpb.Open{Url: "mem://x"}}}, nil, connect.CodePermissionDenied, "start the agent with its URL"},
		"led by another":  {&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Open{Open: &agentpb.Open{Url: url, NoWait: true}}}, nil, connect.CodeFailedPrecondition, "let this client wait"},
		"a large message": {&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Open{Open: &agentpb.Open{Url: url}}}, &agentpb.LeadRequest{Message: &agentpb.LeadRequest_Append{Append: &agentpb.Append{Records: [][]byte{make([]byte, 2<<20)}}}}, connect.CodeResourceExhausted, "larger than configured max"},
		"opened twice":    {&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Open{Open: &agentpb.Open{Url: url}}}, &agentpb.LeadRequest{Message: &agentpb.LeadRequest_Open{Open: &agentpb.Open{Url: url}}}, connect.CodeInvalidArgument, "a stream for each log"},
		"a newer client":  {&agentpb.LeadRequest{Message: &agentpb.LeadRequest_Open{Open: &agentpb.Open{Url: url}}}, &agentpb.LeadRequest{}, connect.CodeInvalidArgument, "newer than the agent"},
	} {
		t.Run(name, func(t *testing.T) {
			b := connect.NewClient[agentpb.LeadRequest, agentpb.LeadResponse](s.http, s.url+"/"+agent.Service+"/Lead").CallBidiStream(t.Context())
			c2 := &lead{t, b}
			c2.send(c.first)
			if c.then != nil {
				c2.send(c.then)
			}
			if err := c2.ended(); connect.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
	good.append("1", "a")
	good.want("committed")
	good.CloseRequest()
	if err := good.ended(); err != nil {
		t.Error(err)
	}
}

// A client that is cut off loses the term at once, and one that is silent after what it has promised.
func TestGoneAndSilent(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	s := serve(t, l, &agent.Options{})
	var conn net.Conn
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	own := *s
	own.http = &http.Client{Transport: &http.Transport{Protocols: &p, DialContext: func(ctx context.Context, network, addr string) (c net.Conn, err error) {
		conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return conn, err
	}}}
	a := own.lead(t.Context(), &agentpb.Open{})
	a.want("leading")
	b := s.lead(t.Context(), &agentpb.Open{PromiseSeconds: 1})
	b.want("waiting")
	conn.Close() // its process has died
	b.want("leading")
	b.append("1", "b")
	b.want("committed")
	if e := b.want("lost"); e.GetCode() != "silent" {
		t.Errorf("%v", e)
	}
	if err := b.ended(); connect.CodeOf(err) != connect.CodeDeadlineExceeded {
		t.Error(err)
	}
	if a.ended() == nil {
		t.Error("a was not cut off")
	}
}

// Stop hands over, and tells the clients.
func TestStop(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	s := serve(t, l, &agent.Options{})
	c := s.lead(t.Context(), &agentpb.Open{})
	c.want("leading")
	c.append("1", "a")
	c.want("committed")
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(t.Context()) }()
	c.want("draining")
	if e := c.want("ended"); e.GetCode() != "stopped" || e.GetEnd() != 1 {
		t.Errorf("%v", e)
	}
	if err := c.ended(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if _, err := call[agentpb.StatusRequest, agentpb.StatusResponse](s, "Status", &agentpb.StatusRequest{Url: url}); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("%v", err)
	}
}

// slow is a store that takes an object of the log when go is closed.
type slow struct {
	store.Store
	armed      atomic.Bool
	begun, go_ chan struct{}
	once       sync.Once
}

func (s *slow) Put(ctx context.Context, key string, body []byte, o *store.PutOptions) (store.Info, error) {
	if s.armed.Load() && strings.HasPrefix(key, "data/") {
		s.once.Do(func() { close(s.begun) })
		<-s.go_
	}
	return s.Store.Put(ctx, key, body, o)
}

// An append that is under way when the agent is told to end gets its outcome.
func TestStopDuringAppend(t *testing.T) {
	l := logtest.New(t, logtest.Format(), nil)
	st := &slow{Store: l.Mem, begun: make(chan struct{}), go_: make(chan struct{})}
	s := serveStore(t, st, &agent.Options{Logs: []string{url}})
	ctx, stop := context.WithCancel(t.Context())
	led := make(chan error, 1)
	go func() { led <- s.Lead(ctx, url) }()
	add := func(record string) (err error) {
		for again := true; again; again = connect.CodeOf(err) == connect.CodeFailedPrecondition {
			_, err = call[agentpb.AppendRequest, agentpb.AppendResponse](s, "Append", &agentpb.AppendRequest{Records: [][]byte{[]byte(record)}})
		}
		return err
	}
	if err := add("a"); err != nil {
		t.Fatal(err)
	}
	st.armed.Store(true)
	appended := make(chan error, 1)
	go func() { appended <- add("b") }()
	<-st.begun
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(t.Context()) }()
	stop()
	for { // until it has been told
		_, err := call[agentpb.StatusRequest, agentpb.StatusResponse](s, "Status", &agentpb.StatusRequest{Url: url})
		if connect.CodeOf(err) == connect.CodeUnavailable {
			break
		}
	}
	close(st.go_)
	if err := errors.Join(<-appended, <-stopped, <-led); err != nil {
		t.Error(err)
	}
	if got := l.Contents(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
}

// A request needs the token, and one that is replaced counts at once.
func TestToken(t *testing.T) {
	token := "one"
	s := serve(t, logtest.New(t, logtest.Format(), nil), &agent.Options{Token: func() (string, error) {
		if token == "" {
			return "", errors.New("no such file")
		}
		return token, nil
	}})
	for _, c := range []struct{ has, sends, says string }{
		{"one", "", "Authorization is missing"},
		{"one", "Bearer two", "the token is wrong"},
		{"one", "Bearer one", ""},
		{"two", "Bearer one", "the token is wrong"},
		{"two", "Bearer two", ""},
		{"", "Bearer ", "cannot be read"},
	} {
		token = c.has
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/grpc.health.v1.Health/Check", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", c.sends)
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if want := map[bool]int{true: 200, false: 401}[c.says == ""]; a.StatusCode != want || !strings.Contains(string(body), c.says) {
			t.Errorf("%+v: %d %s", c, a.StatusCode, body)
		}
	}
}

// A token that is replaced does not cut off the sessions that were let in with the one before.
func TestTokenUnderSession(t *testing.T) {
	var token atomic.Value
	token.Store("one")
	l := logtest.New(t, logtest.Format(), nil)
	s := serve(t, l, &agent.Options{Token: func() (string, error) { return token.Load().(string), nil }})
	with := func(has string) *served {
		return &served{Server: s.Server, t: t, url: s.url, http: s.http, opts: []connect.ClientOption{connect.WithInterceptors(bearer(has))}}
	}
	c := with("one").lead(t.Context(), &agentpb.Open{})
	c.want("leading")
	token.Store("two")
	c.append("1", "a")
	c.want("committed")
	if err := with("one").lead(t.Context(), &agentpb.Open{}).ended(); connect.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("another session with the old token: %v", err)
	}
	if _, err := call[agentpb.StatusRequest, agentpb.StatusResponse](with("two"), "Status", &agentpb.StatusRequest{Url: url}); err != nil {
		t.Error(err)
	}
	if err := c.CloseRequest(); err != nil {
		t.Error(err)
	}
	c.want("ended")
	if got := l.Contents(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q", got)
	}
}

// bearer sends a token with each request.
type bearer string

func (b bearer) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		r.Header().Set("Authorization", "Bearer "+string(b))
		return next(ctx, r)
	}
}

func (b bearer) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		c := next(ctx, spec)
		c.RequestHeader().Set("Authorization", "Bearer "+string(b))
		return c
	}
}

func (b bearer) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// A request must name a host that is served.
func TestHost(t *testing.T) {
	s := serve(t, logtest.New(t, logtest.Format(), nil), &agent.Options{Hosts: []string{"127.0.0.1"}})
	for host, want := range map[string]int{"": 200, "evil.example": 421, "evil.example:80": 421} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/grpc.health.v1.Health/Check", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Host = host
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != want {
			t.Errorf("%q: %d", host, a.StatusCode)
		}
	}
}

func TestTooManyStreams(t *testing.T) {
	s := serve(t, logtest.New(t, logtest.Format(), nil), &agent.Options{Streams: 1})
	c := s.lead(t.Context(), &agentpb.Open{})
	c.want("leading")
	if _, err := call[agentpb.StatusRequest, agentpb.StatusResponse](s, "Status", &agentpb.StatusRequest{Url: url}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("%v", err)
	}
	c.CloseRequest()
	if err := c.ended(); err != nil {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	_, err := agent.New(&agent.Options{Streams: -1, Leader: leader.Options{Validity: 1}, Writer: writer.Options{Concurrency: -1}})
	for _, says := range []string{"Open is nil", "Streams -1", "Leader: ", "Writer: "} {
		if !errors.Is(err, agent.ErrOptions) || !strings.Contains(err.Error(), says) {
			t.Errorf("it does not say %q: %v", says, err)
		}
	}
}
