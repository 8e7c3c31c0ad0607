package catalog

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/semaphore"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/sink"
)

const (
	// maxMetadata is how large the metadata of a version may be, in bytes. Publishers write no larger one.
	maxMetadata = 64 << 20
	// maxMemory is how many bytes of metadata are in memory at once. Requests wait for room.
	maxMemory = 4 * maxMetadata
	// maxRequests is how many requests are served at once; more wait.
	maxRequests = 100
	// requestTime is how long a request takes until its answer begins.
	requestTime = 20 * time.Second
)

var errLate = fmt.Errorf("catalog: no answer within %v", requestTime)

// endpoints are what a client may ask for.
var endpoints = []string{
	"GET /v1/{prefix}/namespaces",
	"GET /v1/{prefix}/namespaces/{namespace}",
	"HEAD /v1/{prefix}/namespaces/{namespace}",
	"GET /v1/{prefix}/namespaces/{namespace}/tables",
	"GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
	"GET /v1/{prefix}/namespaces/{namespace}/views",
	"GET /v1/{prefix}/namespaces/{namespace}/views/{view}",
}

// Server is a catalog. It is safe for concurrent use.
type Server struct {
	opts     Options
	tables   map[string]map[string]*table // by namespace and name
	memory   *semaphore.Weighted
	requests *semaphore.Weighted
}

// New returns a server. It sends no request.
func New(o *Options) (*Server, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Server{opts: *o, tables: map[string]map[string]*table{}, memory: semaphore.NewWeighted(maxMemory), requests: semaphore.NewWeighted(maxRequests)}
	s.opts.Logger = sink.Logger(o.Logger)
	for _, t := range o.Tables {
		if s.tables[t.Namespace] == nil {
			s.tables[t.Namespace] = map[string]*table{}
		}
		s.tables[t.Namespace][t.Name] = &table{Table: t, settle: o.Settle}
	}
	return s, nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := clock.WithTimeout(r.Context(), clock.System(), requestTime, errLate)
	defer cancel()
	if status, err := s.opts.Door.Check(r); err != nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		s.fail(w, r, &problem{status, "NotAuthorizedException", err.Error()})
		return
	}
	err := s.requests.Acquire(ctx, 1)
	if err == nil {
		defer s.requests.Release(1)
		err = s.route(ctx, w, r)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// kinds are what can stand after v1 in a path. Anything else there is a prefix, which a client has made up: see its configuration.
var kinds = []string{"config", "namespaces", "tables", "transactions", "views", "oauth"}

// route serves a request.
func (s *Server) route(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	parts := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i := range parts {
		var err error
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return bad("the path cannot be read: %v", err)
		}
	}
	if len(parts) < 2 || parts[0] != "v1" {
		return nothing(r)
	}
	if parts = parts[1:]; len(parts) > 1 && parts[0] != "" && !slices.Contains(kinds, parts[0]) {
		parts = parts[1:]
	}
	what := parts[0]
	if len(parts) == 1 && what == "config" && reads(r) {
		return s.answer(w, map[string]any{"defaults": struct{}{}, "overrides": struct{}{}, "endpoints": endpoints})
	}
	if what == "namespaces" && len(parts) == 5 && parts[2] == "tables" && parts[4] == "metrics" && r.Method == http.MethodPost {
		// Engines report what a scan has cost. Nobody here wants to know.
		if _, err := s.table(parts[1], parts[3]); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if !slices.Contains(kinds, what) {
		return nothing(r)
	}
	// guard:catalog-reads. What would change a table or a namespace is refused, whatever it is.
	//
	//mutant:replace !reads(r) => false
	if !reads(r) {
		return refused(what)
	}
	if what != "namespaces" {
		return nothing(r)
	}
	return s.namespaces(ctx, w, r, parts[1:])
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }

// namespaces serves what is below namespaces in a path.
func (s *Server) namespaces(ctx context.Context, w http.ResponseWriter, r *http.Request, parts []string) error {
	if len(parts) == 0 {
		return s.list(w, r)
	}
	tables, err := s.namespace(parts[0])
	switch {
	case err != nil:
		return err
	case len(parts) == 1 && r.Method == http.MethodHead:
		w.WriteHeader(http.StatusNoContent)
		return nil
	case len(parts) == 1:
		return s.answer(w, map[string]any{"namespace": parts[:1], "properties": struct{}{}})
	case parts[1] == "views" && len(parts) == 2:
		return s.answer(w, listing{Identifiers: &[]identifier{}})
	case parts[1] == "views" && len(parts) == 3:
		return notFound("NoSuchViewException", "there are no views here")
	case parts[1] != "tables" || len(parts) > 3:
		return nothing(r)
	case len(parts) == 2:
		names, next, err := page(tables, r.URL.Query())
		if err != nil {
			return err
		}
		all := []identifier{}
		for _, name := range names {
			all = append(all, identifier{parts[:1], name})
		}
		return s.answer(w, listing{Identifiers: &all, Next: next})
	}
	t, err := s.table(parts[0], parts[2])
	if err != nil {
		return err
	}
	if r.Method == http.MethodGet {
		return s.load(ctx, w, r, t)
	}
	if _, err := t.newest(ctx); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// list serves the namespaces. None has another one below it.
func (s *Server) list(w http.ResponseWriter, r *http.Request) error {
	all := [][]string{}
	if parent := r.URL.Query().Get("parent"); parent != "" {
		if _, err := s.namespace(parent); err != nil {
			return err
		}
		return s.answer(w, listing{Namespaces: &all})
	}
	names, next, err := page(s.tables, r.URL.Query())
	if err != nil {
		return err
	}
	for _, name := range names {
		all = append(all, []string{name})
	}
	return s.answer(w, listing{Namespaces: &all, Next: next})
}

// page returns the part of the names that a client asks for: without a token, all of them. A token is the last name of the
// page before.
func page[T any](all map[string]T, q url.Values) (names []string, next string, err error) {
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	if !q.Has("pageToken") {
		return names, "", nil
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name <= q.Get("pageToken") })
	size := 1000
	if text := q.Get("pageSize"); text != "" {
		if size, err = strconv.Atoi(text); err != nil || size < 1 {
			return nil, "", bad("pageSize is %.100q; it must be a number above 0", text)
		}
	}
	if len(names) <= size {
		return names, "", nil
	}
	return names[:size], names[size-1], nil
}

func (s *Server) namespace(name string) (map[string]*table, error) {
	tables := s.tables[name]
	if tables == nil {
		return nil, notFound("NoSuchNamespaceException", "there is no namespace %.100q here: this catalog has the tables that it was started with", name)
	}
	return tables, nil
}

func (s *Server) table(namespace, name string) (*table, error) {
	tables, err := s.namespace(namespace)
	if err != nil {
		return nil, err
	}
	t := tables[name]
	if t == nil {
		return nil, notFound("NoSuchTableException", "there is no table %.100q in the namespace %s: this catalog has the tables that it was started with", name, namespace)
	}
	return t, nil
}

// fail sends an error.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Code >= http.StatusInternalServerError && r.Context().Err() == nil {
		s.opts.Logger.Warn("a request failed", zap.String("path", shortened(r.URL.Path)), zap.Int("status", p.Code), zap.Error(err))
	}
	if p.Code == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	s.send(w, p.Code, map[string]*problem{"error": p})
}
