package cloud

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a network in memory. While it is cut, bytes from a client vanish, and nobody is told.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
	once  sync.Once
	dials atomic.Int64
}

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	p.dials.Add(1)
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return &cuttable{Conn: ours}, nil
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.ended) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443} }

type cuttable struct {
	net.Conn
	cut atomic.Bool
}

func (c *cuttable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A connection of HTTP/2 that died without a word is given up in time for the next heartbeats.
func TestDeadConnectionOfHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wire := &pipes{conns: make(chan net.Conn, 8), ended: make(chan struct{})}
		srv := &httptest.Server{Listener: wire, EnableHTTP2: true, Config: &http.Server{
			ReadHeaderTimeout: time.Minute,
			Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		}}
		srv.StartTLS()
		defer srv.Close()
		transport := Transport()
		defer transport.CloseIdleConnections()
		var first *cuttable
		transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := wire.dial(ctx, network, addr)
			if first == nil {
				first = c.(*cuttable) //nolint:forcetypeassert // dial makes it
			}
			return c, err
		}
		transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // of a test
		get := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://store/", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := transport.RoundTrip(req)
			if err != nil {
				return err
			}
			if resp.ProtoMajor != 2 {
				t.Errorf("it speaks %s", resp.Proto)
			}
			return resp.Body.Close()
		}
		if err := get(); err != nil {
			t.Fatal(err)
		}
		first.cut.Store(true)
		start := time.Now()
		for get() != nil {
			if took := time.Since(start); took > 22*time.Second {
				t.Fatalf("after %v requests still go over the dead connection", took)
			}
			time.Sleep(time.Second)
		}
		if n := wire.dials.Load(); n != 2 {
			t.Errorf("%d connections, want 2", n)
		}
		t.Logf("%v after the cut a request is answered", time.Since(start))
	})
}

// An answer is whole up to a number of tags and attributes.
//
// guard:sparse-tags. Without this limit: a broken server answers a listing with 8 MiB of empty objects; the SDK of S3
// allocates a gigabyte for it; the process has less, and is killed.
func TestAnswerOfManyTags(t *testing.T) {
	for text, whole := range map[string]bool{
		strings.Repeat("<a>", MaxTags):                                  true,
		strings.Repeat("<a>", MaxTags+1):                                false,
		"<a " + strings.Repeat(`b="" `, MaxTags-1) + ">":                true,
		"<a " + strings.Repeat(`b='' `, MaxTags) + ">":                  false,
		`<!-- ' --><a c='">' ` + strings.Repeat(`b="" `, MaxTags) + ">": false,
		"<a>" + strings.Repeat(`b="c'd=`, MaxTags) + "</a>":             true,
		`<a b="` + strings.Repeat(`=>'`, MaxTags) + `">`:                true,
	} {
		got, err := io.ReadAll(Answer(io.NopCloser(strings.NewReader(text))))
		if ok := err == nil && string(got) == text; ok != whole {
			t.Errorf("%.30s: %d of %d bytes, %v", text, len(got), len(text), err)
		}
	}
}
