package cloudtest

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"
)

// Stub gives the requests to a fake service faults, and records them.
type Stub struct {
	mu    sync.Mutex
	seen  []Request
	fault func(kind string, n int) *Fault
}

// Request is a request that the service has seen. Kind is the service's own word for it.
type Request struct {
	Kind, Key string
	At        time.Time
}

// Fault is what goes wrong with a request.
type Fault struct {
	Answers http.HandlerFunc // answers in place of the service
	Drop    bool             // no answer and no effect
	Lost    bool             // no answer after the effect
	Cut     int              // the answer's body ends after so many bytes
}

// On gives a fault to the n-th request of a kind after a Reset, or to all of them if n is
// 0.
func (s *Stub) On(kind string, n int, f Fault) {
	s.Faults(func(k string, i int) *Fault {
		if k == kind && (n == 0 || i == n) {
			return &f
		}
		return nil
	})
}

// Faults gives the n-th request of each kind the fault that f returns, if any.
func (s *Stub) Faults(f func(kind string, n int) *Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Reset clears the requests and the fault.
func (s *Stub) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.fault = nil, nil
}

// Requests returns the requests since Reset.
func (s *Stub) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// Kinds returns the kinds of the requests since Reset.
func (s *Stub) Kinds() (kinds []string) {
	for _, r := range s.Requests() {
		kinds = append(kinds, r.Kind)
	}
	return kinds
}

// Serve answers a request with do, or as its fault says.
func (s *Stub) Serve(w http.ResponseWriter, r *http.Request, kind, key string, do func(w http.ResponseWriter, body []byte)) {
	s.mu.Lock()
	s.seen = append(s.seen, Request{kind, key, time.Now()})
	n := 0
	for _, r := range s.seen {
		if r.Kind == kind {
			n++
		}
	}
	var f Fault
	if s.fault != nil {
		if p := s.fault(kind, n); p != nil {
			f = *p
		}
	}
	s.mu.Unlock()
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	switch {
	case f.Drop:
		panic(http.ErrAbortHandler)
	case f.Answers != nil:
		f.Answers(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // half a body is no request
	}
	rec := httptest.NewRecorder()
	do(rec, body)
	if f.Lost {
		panic(http.ErrAbortHandler)
	}
	maps.Copy(w.Header(), rec.Header())
	w.WriteHeader(rec.Code)
	if f.Cut > 0 {
		_, _ = w.Write(rec.Body.Bytes()[:f.Cut])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(rec.Body.Bytes())
}
