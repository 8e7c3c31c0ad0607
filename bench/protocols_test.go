package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/s3stub"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/writer"
)

// route is how requests get to an S3 endpoint in virtual time: over TLS, and perhaps over
// connections that break off.
type route struct{ http2, broken bool }

func (r route) String() string {
	s := "HTTP/1.1"
	if r.http2 {
		s = "HTTP/2"
	}
	if r.broken {
		s += ", connections broken off"
	}
	return s
}

const (
	// handshake is how long a connection takes to open, besides the exchange of bytes: two round trips
	// of 1 ms, for TCP and TLS 1.3.
	handshake = 2 * time.Millisecond
	// oneBreaks is how many requests there are for each whose connection breaks off.
	oneBreaks = 100
)

// pipes is a network in memory, so that a bubble's time goes on while everybody waits for bytes.
type pipes struct {
	conns  chan net.Conn
	over   chan struct{}
	close  sync.Once
	opened atomic.Int64
}

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	time.Sleep(handshake)
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		p.opened.Add(1)
		return ours, nil
	case <-p.over:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.over:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.close.Do(func() { close(p.over) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

// front serves S3 in virtual time. The stub answers at once. The far has the times, and counts.
type front struct {
	t    *testing.T
	via  route
	stub *s3stub.Server
	far  *far
	n    atomic.Int64 // requests
}

type connKey struct{}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoAtLeast(2, 0) != f.via.http2 {
		f.t.Errorf("a request came over %s", r.Proto)
	}
	n := f.n.Add(1)
	breaks := f.via.broken && n%oneBreaks == 0
	breakOff := func() {
		_ = r.Context().Value(connKey{}).(interface{ NetConn() net.Conn }).NetConn().Close()
		panic(http.ErrAbortHandler)
	}
	body, err := io.ReadAll(r.Body)
	d := f.takes(r, len(body))
	if breaks && n/oneBreaks%2 == 0 {
		breakOff() // nothing is applied
	}
	if err != nil {
		return // the client has cancelled the request
	}
	// The request is applied at half of its time, even if its client gives it up before.
	time.Sleep(d / 2)
	answer := httptest.NewRecorder()
	r.Body = io.NopCloser(bytes.NewReader(body))
	f.stub.ServeHTTP(answer, r)
	if breaks {
		breakOff() // it is applied, and its answer is lost
	}
	time.Sleep(d - d/2)
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.Code)
	_, _ = w.Write(answer.Body.Bytes())
}

// takes counts a request, and returns how long it takes.
func (f *front) takes(r *http.Request, size int) time.Duration {
	key := strings.Trim(strings.TrimPrefix(r.URL.Path, "/"+bucket), "/")
	switch {
	case r.Method == http.MethodPut:
		count := &f.far.others
		if strings.HasPrefix(key, layout.DataPrefix) {
			count = &f.far.puts
		}
		return f.far.begin(key, count) + time.Duration(float64(size)/90e6*float64(time.Second))
	case key != "":
		return f.far.begin("get "+key, &f.far.gets) / 2
	}
	return f.far.begin("list", &f.far.lists)
}

// overHTTP runs a load with the S3 driver and the SDK's own HTTP client. It returns how many
// connections were opened a second, too.
func (p *pacing) overHTTP(f manifest.Format, via route, l traffic, long time.Duration, opts writer.Options) (s score, opened float64) {
	stub := s3stub.Start(&s3stub.Options{RandomETags: true}) // its listener is not used
	defer stub.Close()
	synctest.Test(p.t, func(t *testing.T) {
		wire := &pipes{conns: make(chan net.Conn), over: make(chan struct{})}
		h := &front{t: t, via: via, stub: stub, far: newFar(spreads[0])}
		srv := &httptest.Server{Listener: wire, EnableHTTP2: via.http2, Config: &http.Server{
			Handler: h, ErrorLog: log.New(io.Discard, "", 0), // connections break off on purpose
			ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
		}}
		srv.StartTLS()
		e, err := newClient(s3.Options{
			BaseEndpoint: aws.String(srv.URL), Credentials: credentials.NewStaticCredentialsProvider("AK", "SK", ""),
			HTTPClient: awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
				t.TLSClientConfig = srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				t.DialContext, t.MaxIdleConns, t.MaxIdleConnsPerHost = wire.dial, 0, 256 // as the driver does for a URL
			}),
		}, bucket)
		if err != nil {
			t.Fatal(err)
		}
		opts.Checkpoint, opts.NoCompress = -1, true
		s = l.run(newFenced(t, f, e.st, opts), h.far, long/5, long)
		opened = float64(wire.opened.Load()) / (long + long/5).Seconds()
		srv.CloseClientConnections()
		srv.Close()
		time.Sleep(time.Minute) // requests that were given up end too
	})
	return s, opened
}

// dollars are those of a month of so many requests a second, at the prices of S3 Standard in us-east-1.
func dollars(puts, gets float64) float64 {
	const month, put, get = 730 * 3600, 5e-6, 0.4e-6 // seconds; dollars a request: PUT and LIST, GET
	return (puts*put + gets*get) * month
}

// protocols compares the writer that hedges, as it does by default, with one that does not.
func (p *pacing) protocols(f manifest.Format) {
	long := 2 * time.Minute
	if *into == "" {
		long = 10 * time.Second
	}
	for _, l := range []traffic{{rate: 400, size: 100}, {clients: 64, size: 100}} {
		for _, via := range []route{{}, {http2: true}, {broken: true}, {http2: true, broken: true}} {
			start := time.Now()
			now, opened := p.overHTTP(f, via, l, long, writer.Options{})
			never, fewer := p.overHTTP(f, via, l, long, writer.Options{Hedge: -1})
			name := fmt.Sprintf("%s, S3's tail, %s: ", via, l)
			row := func(what string, a, b, goal float64, unit string) Row {
				return Row{Name: name + what + ", hedged to not hedged", Value: a / b, Goal: goal, Ratio: true, Note: fmt.Sprintf("%.1f to %.1f%s", a, b, unit)}
			}
			first := row("p50", now.p50, never.p50, 1, " ms")
			if l.clients > 0 {
				first = row("acknowledgements a second", now.acks, never.acks, 1, "")
				first.More = true
			}
			cost := row("dollars a month for requests", dollars(now.puts, now.gets), dollars(never.puts, never.gets), -1, " dollars")
			cost.Note += fmt.Sprintf("; a second: %.1f GETs to %.1f, %.1f new connections to %.1f", now.gets, never.gets, opened, fewer)
			p.add(first, row("p99", now.p99, never.p99, 1, " ms"), row("PUTs a second", now.puts, never.puts, -1, ""), cost)
			took(strings.TrimSuffix(name, ": "), start)
		}
	}
}
