package s3stub

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/clock"
)

// Options tune a [Server]. The zero value works.
type Options struct {
	// Buckets exist from the start, default one called "bucket".
	Buckets []string
	// RandomETags gives every write an ETag of its own, as S3 Express does.
	// Otherwise ETags are MD5 sums and equal bodies have equal ETags.
	RandomETags bool
	// UnquotedMatch makes If-Match on PUT hold only for an ETag without quotes,
	// as in Ceph's RGW.
	UnquotedMatch bool
	// ListUnquoted leaves out the quotes around ETags in listings.
	ListUnquoted bool
	// OddCompletion answers the completion of an upload with another ETag than the object
	// has, as gofakes3 does.
	OddCompletion bool
	// Lifecycle are the rules in the answer to GetBucketLifecycleConfiguration, in XML. The
	// stub does not apply them. Empty means none.
	Lifecycle string
	// Latency is added to each request; nil means none.
	Latency Latency
	// Class sorts keys for [Server.Counts]; default is the first part of the key.
	Class func(key string) string
	// Record keeps a [Timing] of every request.
	Record bool
	// TLS serves https with a certificate of its own; see [Server.HTTPClient].
	TLS bool
	// Clock is the machine's by default. Date and Last-Modified are its wall time.
	Clock clock.Clock
}

// Server is the endpoint. It is an [http.Handler] too.
type Server struct {
	opts    Options
	clock   clock.Clock
	done    chan struct{} // closed by Close, which cuts latencies short
	buckets sync.Map      // name → *bucket
	tally   tally
	bodies  bodies

	faultMu sync.RWMutex
	fault   func(*Request) *Fault
	// keyErrors are codes for keys of DeleteObjects; replaced, never changed.
	keyErrors map[string]string

	http     *http.Server
	listener net.Listener
	client   *http.Client
	serving  sync.WaitGroup // the accept loop
	handling sync.WaitGroup // requests, including those whose client is gone
	closing  sync.Once
	gate     sync.RWMutex // orders handling.Add before Close's Wait
	closed   bool
}

// New returns a server that listens nowhere: use it as an [http.Handler].
func New(opts *Options) *Server {
	s := &Server{opts: *cmp.Or(opts, &Options{})}
	if s.opts.Buckets == nil {
		s.opts.Buckets = []string{"bucket"}
	}
	if s.opts.Class == nil {
		s.opts.Class = firstPart
	}
	s.clock = clock.Or(s.opts.Clock)
	s.done = make(chan struct{})
	for _, name := range s.opts.Buckets {
		s.buckets.Store(name, newBucket())
	}
	s.tally.reset()
	return s
}

// Start returns a server that listens on a free loopback port. The caller closes it.
func Start(opts *Options) (*Server, error) {
	s := New(opts)
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("s3stub: %w", err)
	}
	s.listener = listener
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: time.Minute,
		ErrorLog: log.New(io.Discard, "", 0), // tests cancel requests on purpose
	}
	transport := &http.Transport{MaxIdleConnsPerHost: 256}
	if s.opts.TLS {
		cert, pool, err := selfSigned(s.clock.Wall())
		if err != nil {
			listener.Close()
			return nil, fmt.Errorf("s3stub: %w", err)
		}
		s.listener = tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{cert}})
		transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	s.client = &http.Client{Transport: transport}
	s.serving.Go(func() { _ = s.http.Serve(s.listener) })
	return s, nil
}

// URL is the endpoint, such as http://127.0.0.1:34567. It is empty for a server
// that was not started.
func (s *Server) URL() string {
	switch {
	case s.listener == nil:
		return ""
	case s.opts.TLS:
		return "https://" + s.listener.Addr().String()
	}
	return "http://" + s.listener.Addr().String()
}

// StoreURL is the URL of the first bucket for store.Open: s3://bucket?endpoint=….
func (s *Server) StoreURL() string {
	return "s3://" + s.opts.Buckets[0] + "?endpoint=" + s.URL() + "&region=us-east-1"
}

// HTTPClient trusts the server's certificate.
func (s *Server) HTTPClient() *http.Client { return s.client }

// Close stops listening, ends waits and latencies, and returns when the last request has
// ended. It may be called more than once.
func (s *Server) Close() error {
	s.closing.Do(func() {
		s.gate.Lock()
		s.closed = true
		s.gate.Unlock()
		close(s.done)
		if s.http != nil {
			_ = s.http.Close()
			s.client.CloseIdleConnections()
		}
		s.serving.Wait()
		s.handling.Wait()
	})
	return nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.gate.RLock()
	if s.closed {
		s.gate.RUnlock()
		panic(http.ErrAbortHandler)
	}
	s.handling.Add(1)
	s.gate.RUnlock()
	defer s.handling.Done()

	arrived := s.clock.Now()
	req := parse(r)
	req.Class = s.opts.Class(req.Key)
	req.N = s.tally.add(req)
	fault := s.faultFor(req)
	if fault.Early {
		s.send(w, req, fault, fault.reply(req))
		return
	}
	if fault.Drop && !fault.Apply {
		panic(http.ErrAbortHandler)
	}
	body, refused := s.readBody(r, req)
	if s.bodies.forgets(req.Op) {
		defer s.bodies.give(body)
	}
	if fault.Received != nil {
		fault.Received()
	}
	var latency time.Duration
	if s.opts.Latency != nil {
		latency = s.opts.Latency(req.Op, len(body))
	}
	latency += fault.Delay
	// Half of the time passes before the request is applied and half after it, so that a
	// client may give up before or after the write.
	s.pause(latency / 2)
	if fault.Wait != nil {
		select {
		case <-fault.Wait:
		case <-s.done:
			panic(http.ErrAbortHandler)
		}
	}
	answer := refused
	if answer == nil && (fault.Status == 0 || fault.Apply) {
		answer = s.apply(req, body)
		if fault.Applied != nil {
			fault.Applied()
		}
	}
	if fault.Status != 0 {
		answer = fault.reply(req)
	}
	s.pause(latency - latency/2)
	if s.opts.Record {
		s.tally.record(Timing{Op: req.Op, Key: req.Key, Class: req.Class, Size: len(body), Arrived: arrived, Answered: s.clock.Now(), Latency: latency, Status: answer.status, Dropped: fault.Drop})
	}
	if fault.Drop {
		panic(http.ErrAbortHandler)
	}
	s.send(w, req, fault, answer)
}

// pause waits for d or until the server closes. It goes on when the client is gone: its
// request lands all the same.
func (s *Server) pause(d time.Duration) {
	if d <= 0 {
		return
	}
	over := make(chan struct{})
	timer := s.clock.AfterFunc(d, func() { close(over) })
	defer timer.Stop()
	select {
	case <-over:
	case <-s.done:
	}
}

// send writes an answer. It does not copy the body.
func (s *Server) send(w http.ResponseWriter, req *Request, fault *Fault, a *reply) {
	h := w.Header()
	for k, v := range a.header {
		h[k] = v
	}
	h.Set("Date", s.clock.Wall().UTC().Format(http.TimeFormat))
	h.Set("X-Amz-Request-Id", fmt.Sprintf("%016X", req.N))
	if fault.Edit != nil {
		fault.Edit(h)
	}
	if a.status != http.StatusNotModified && a.status != http.StatusNoContent && h.Get("Content-Length") == "" {
		h.Set("Content-Length", fmt.Sprint(len(a.body)))
	}
	w.WriteHeader(a.status)
	if req.HTTP.Method != http.MethodHead && len(a.body) > 0 {
		_, _ = w.Write(a.body)
	}
}

func firstPart(key string) string {
	part, _, _ := strings.Cut(key, "/")
	return part
}
