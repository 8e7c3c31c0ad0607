package s3stub

import (
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Fault is what goes wrong with a request. The zero value is nothing.
type Fault struct {
	// Delay is added to the latency.
	Delay time.Duration
	// Received is called when the whole request is there, before anything else is
	// done with it. Whoever cancels it earlier may cut off its body.
	Received func()
	// Wait holds the request, before it is applied, until the channel is closed.
	Wait <-chan struct{}
	// Status is answered instead of the true answer, with Code in S3's error
	// document (or with no body at all if Code is empty) and RetryAfter seconds.
	// The request is not applied, unless Apply says so.
	Status     int
	Code       string
	RetryAfter int
	// Early answers Status without reading the request's body.
	Early bool
	// Drop closes the connection without an answer: before anything is applied,
	// or after it if Apply is set.
	Drop bool
	// Apply carries the request out before it is answered wrongly or dropped.
	Apply bool
	// Applied is called when the request has been carried out, before it is
	// answered.
	Applied func()
	// Edit changes the headers of the answer, last thing before it is sent.
	Edit func(http.Header)
}

// Lost is a fault: the request is applied and its reply lost.
var Lost = Fault{Apply: true, Drop: true}

func (f *Fault) reply(req *Request) *reply {
	a := ok(f.Status)
	if f.Code != "" {
		a = fail(req, f.Status, f.Code, "a fault of the stub")
	}
	if f.RetryAfter > 0 {
		a.header.Set("Retry-After", strconv.Itoa(f.RetryAfter))
	}
	return a
}

// SetFault asks f about every request from now on; nil ends it. F is called
// from many goroutines and returns nil for a request that is to go well.
func (s *Server) SetFault(f func(*Request) *Fault) {
	s.faultMu.Lock()
	s.fault = f
	s.faultMu.Unlock()
}

func (s *Server) faultFor(req *Request) *Fault {
	s.faultMu.RLock()
	f := s.fault
	s.faultMu.RUnlock()
	if f != nil {
		if fault := f(req); fault != nil {
			return fault
		}
	}
	return &Fault{}
}

// KeyErrors makes DeleteObjects fail for some keys with the given codes, from
// now on; nil ends it. These keys are kept.
func (s *Server) KeyErrors(codes map[string]string) {
	s.faultMu.Lock()
	s.keyErrors = codes
	s.faultMu.Unlock()
}

func (s *Server) keyError(key string) string {
	s.faultMu.RLock()
	defer s.faultMu.RUnlock()
	return s.keyErrors[key]
}

// Nth is a hook for [Server.SetFault]: the nth request of op from now on, from
// 1, gets the fault.
func Nth(op Op, n int, fault Fault) func(*Request) *Fault {
	var mu sync.Mutex
	seen := 0
	return func(r *Request) *Fault {
		if r.Op != op {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen == n {
			return &fault
		}
		return nil
	}
}

// Every is a hook for [Server.SetFault]: each request of op gets the fault.
func Every(op Op, fault Fault) func(*Request) *Fault {
	return func(r *Request) *Fault {
		if r.Op != op {
			return nil
		}
		return &fault
	}
}
