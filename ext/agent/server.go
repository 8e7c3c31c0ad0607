package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ext/agent/door"
	"github.com/fencepost/fencepost/ext/agent/push"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
)

// Service is the name of the service in the schema.
const Service = "fencepost.agent.v1.Agent"

// readTime is how long a client may take to read a part of an answer.
const readTime = 15 * time.Second

// maxKept is how many logs, and positions of consumers, the server keeps open.
const maxKept = 1000

// Server serves clients. It is safe for concurrent use.
type Server struct {
	opts     Options
	handler  http.Handler
	stopping chan struct{}
	streams  chan struct{}

	mu        sync.Mutex
	requests  sync.WaitGroup // with mu held, so that none begins after Stop
	stopped   bool
	logs      map[string]*log
	consumers map[[2]string]*reader.Consumer
}

// log is a log that a client has named.
type log struct {
	url string
	st  store.Store

	mu     sync.Mutex
	reader *reader.Reader
	leads  *fencepost.Session // of a session of this server
	own    bool               // the server leads it itself, for Append

	feed    *push.Feed
	token   string        // of the readers that are told
	commits chan struct{} // has an element while a commit is in flight
	cursor  []byte        // that the log has; for who has put that
}

// New returns a server.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: o.withDefaults(), stopping: make(chan struct{}), logs: map[string]*log{}, consumers: map[[2]string]*reader.Consumer{}}
	s.streams = make(chan struct{}, s.opts.Streams)
	limits := connect.WithHandlerOptions(append(codecs(), connect.WithReadMaxBytes(s.opts.MessageBytes))...)
	mux := http.NewServeMux()
	at := func(method string) string { return "/" + Service + "/" + method }
	mux.Handle(at("Lead"), connect.NewBidiStreamHandler(at("Lead"), s.lead, limits))
	mux.Handle(at("Append"), connect.NewUnaryHandlerSimple(at("Append"), s.append, limits))
	mux.Handle(at("Read"), connect.NewServerStreamHandlerSimple(at("Read"), s.read(false), limits))
	mux.Handle(at("Follow"), connect.NewServerStreamHandlerSimple(at("Follow"), s.read(true), limits))
	mux.Handle(at("Consumer"), connect.NewUnaryHandlerSimple(at("Consumer"), s.consumer, limits))
	mux.Handle(at("Register"), connect.NewUnaryHandlerSimple(at("Register"), s.register, limits))
	mux.Handle(at("Status"), connect.NewUnaryHandlerSimple(at("Status"), s.status, limits))
	mux.Handle(at("Commit"), connect.NewClientStreamHandler(at("Commit"), s.commit, limits))
	mux.Handle(at("Tail"), connect.NewServerStreamHandlerSimple(at("Tail"), s.tail, limits))
	mux.HandleFunc("/lines", s.lines)
	mux.Handle(at("Check"), connect.NewUnaryHandlerSimple(at("Check"), s.check, limits))
	mux.Handle(at("Files"), connect.NewServerStreamHandlerSimple(at("Files"), s.files, limits))
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker(Service), limits))
	reflector := grpcreflect.NewStaticReflector(Service)
	mux.Handle(grpcreflect.NewHandlerV1(reflector, limits))
	mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, limits))
	s.handler = mux
	return s, nil
}

// controller is the key of the http.ResponseController in the context of a request.
type controller struct{}

// ServeHTTP implements http.Handler. It needs HTTP/2 for Lead over gRPC: let http.Server.Protocols have it, unencrypted too.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	refuse := func(code connect.Code, format string, args ...any) {
		_ = connect.NewErrorWriter().Write(w, r, connect.NewError(code, fmt.Errorf(format, args...)))
	}
	way := door.Door{Hosts: s.opts.Hosts, Token: s.opts.Token}
	switch status, err := way.Check(r); status {
	case 0:
	case http.StatusUnauthorized:
		refuse(connect.CodeUnauthenticated, "agent: %w", err)
		return
	default:
		http.Error(w, "agent: "+err.Error(), status)
		return
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		refuse(connect.CodeResourceExhausted, "agent: %d requests are served already; close some, or allow more", s.opts.Streams)
		return
	}
	s.serve(w, r, s.handler)
}

// serve serves a request that is allowed, until the server ends.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, h http.Handler) {
	s.mu.Lock()
	if s.stopped {
		s.mu.Unlock()
		_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodeUnavailable, errors.New("agent: it is about to end; connect to another one")))
		return
	}
	s.requests.Add(1)
	s.mu.Unlock()
	defer s.requests.Done()
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), controller{}, http.NewResponseController(w)))
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	h.ServeHTTP(&patient{ResponseWriter: w, server: s}, r.WithContext(ctx))
	cancel()
	<-ended
}

// Stop ends all requests: sessions hand over within the bounds of fencepost.Run, and are told. It returns when they have
// ended, or with ctx.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	if !s.stopped {
		s.stopped = true
		close(s.stopping)
	}
	s.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.requests.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// patient is a response that a client must read within a time.
type patient struct {
	http.ResponseWriter
	server *Server
}

// within sets the time for do. Afterwards there is none: a deadline that passes ends the stream, whether or not it is written to.
func (p *patient) within(do func(c *http.ResponseController)) {
	c := http.NewResponseController(p.ResponseWriter)
	_ = c.SetWriteDeadline(p.server.opts.Clock.Wall().Add(readTime))
	do(c)
	_ = c.SetWriteDeadline(time.Time{})
}

// Write implements io.Writer.
func (p *patient) Write(b []byte) (n int, err error) {
	p.within(func(*http.ResponseController) { n, err = p.ResponseWriter.Write(b) })
	return n, err
}

// Flush implements http.Flusher.
func (p *patient) Flush() { p.within(func(c *http.ResponseController) { _ = c.Flush() }) }

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// log returns the log that a client has named.
func (s *Server) log(ctx context.Context, url string) (*log, error) {
	if url == "" && len(s.opts.Logs) == 1 {
		url = s.opts.Logs[0]
	}
	if len(s.opts.Logs) > 0 && !slices.Contains(s.opts.Logs, url) {
		return nil, connect.NewError(connect.CodePermissionDenied, fmt.Errorf("agent: the log %q is not served here; start the agent with its URL", url))
	}
	s.mu.Lock()
	l := s.logs[url]
	s.mu.Unlock()
	if l != nil {
		return l, nil
	}
	st, err := s.opts.Open(ctx, url)
	if err != nil {
		return nil, status(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.logs[url]; l != nil {
		return l, nil
	}
	if len(s.logs) >= maxKept {
		return nil, connect.NewError(connect.CodeResourceExhausted, fmt.Errorf("agent: it has %d logs open; start another agent", maxKept))
	}
	l = &log{url: url, st: st, feed: push.NewFeed(s.opts.Clock), token: rand.Text(), commits: make(chan struct{}, 1)}
	s.logs[url] = l
	return l, nil
}

// began notes who leads the log.
func (l *log) began(w *fencepost.Session) (ended func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = w
	end := l.feed.Begin(w.Epoch(), func() error { return w.Check(0) })
	return func() {
		end()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.leads == w {
			l.leads = nil
		}
	}
}

// session returns the session that leads the log here, if one does. own says that it is the server's.
func (l *log) session() (w *fencepost.Session, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leads, l.own
}

// open returns a reader of the log.
func (s *Server) open(ctx context.Context, l *log) (*reader.Reader, error) {
	l.mu.Lock()
	r := l.reader
	l.mu.Unlock()
	if r != nil {
		return r, nil
	}
	r, err := reader.Open(ctx, l.st, &reader.Options{Push: l.push(s.opts.Clock)})
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.reader = r
	}
	return r, err
}
