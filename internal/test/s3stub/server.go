package s3stub

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
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
	// Record keeps a [Timing] of every request.
	Record bool
	// TLS serves https with a certificate of its own; see [Server.HTTPClient].
	TLS bool
	// Clock is the machine's by default. Date and Last-Modified are its wall time.
	Clock clock.Clock
}

// Server is the endpoint.
type Server struct {
	opts    Options
	clock   clock.Clock
	done    chan struct{}      // closed by Close, which cuts latencies short
	buckets map[string]*bucket // by name; never changed
	tally   tally
	bodies  bodies

	fault     atomic.Pointer[func(*Request) *Fault]
	keyErrors atomic.Pointer[map[string]string] // codes for keys of DeleteObjects

	http    *httptest.Server
	closing sync.Once
}

// newServer returns a server that does not listen yet.
func newServer(opts *Options) *Server {
	s := &Server{opts: *cmp.Or(opts, &Options{}), done: make(chan struct{}), buckets: map[string]*bucket{}}
	if s.opts.Buckets == nil {
		s.opts.Buckets = []string{"bucket"}
	}
	s.clock = clock.Or(s.opts.Clock)
	for _, name := range s.opts.Buckets {
		s.buckets[name] = &bucket{objects: map[string]*object{}, uploads: map[string]*upload{}}
	}
	s.Reset()
	return s
}

// Start returns a server that listens on a free loopback port. The caller closes it.
func Start(opts *Options) *Server {
	s := newServer(opts)
	s.http = httptest.NewUnstartedServer(s)
	s.http.Config.ErrorLog = log.New(io.Discard, "", 0) // tests cancel requests on purpose
	if s.opts.TLS {
		s.http.StartTLS()
	} else {
		s.http.Start()
	}
	s.HTTPClient().Transport.(*http.Transport).MaxIdleConnsPerHost = 256
	return s
}

// URL is the endpoint, such as http://127.0.0.1:34567.
func (s *Server) URL() string { return s.http.URL }

// StoreURL is the URL of the first bucket for store.Open: s3://bucket?endpoint=….
func (s *Server) StoreURL() string {
	return "s3://" + s.opts.Buckets[0] + "?endpoint=" + s.URL() + "&region=us-east-1"
}

// HTTPClient trusts the server's certificate.
func (s *Server) HTTPClient() *http.Client { return s.http.Client() }

// Close stops listening, ends waits and latencies, and returns when the last request has
// ended. It may be called more than once.
func (s *Server) Close() {
	s.closing.Do(func() {
		close(s.done)
		s.http.CloseClientConnections()
		s.http.Close()
	})
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	arrived := s.clock.Now()
	req := parse(r)
	s.tally.add(req.Op)
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
		s.tally.record(Timing{Op: req.Op, Key: req.Key, Arrived: arrived, Answered: s.clock.Now()})
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
	maps.Copy(h, a.header)
	h.Set("Date", s.clock.Wall().UTC().Format(http.TimeFormat))
	h.Set("X-Amz-Request-Id", "s3stub")
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
