package s3stub

import (
	"cmp"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Fault is what goes wrong with a request. The zero value is nothing.
type Fault struct {
	// Delay is added to the latency.
	Delay time.Duration
	// Received is called when the whole request has arrived, before anything else. A client
	// that cancels earlier may cut off the body.
	Received func()
	// Wait holds the request, before it is applied, until the channel is closed.
	Wait <-chan struct{}
	// Status replaces the true answer, with Code in S3's error document and RetryAfter in
	// seconds. If Code is empty there is no body. The request is applied only if Apply is
	// set.
	Status     int
	Code       string
	RetryAfter int
	// Early sends the answer before the request's body is read.
	Early bool
	// Drop closes the connection without an answer: before anything is applied,
	// or after it if Apply is set.
	Drop bool
	// Apply applies the request before the wrong answer or the drop.
	Apply bool
	// Applied is called when the request was applied, before the answer.
	Applied func()
	// Edit changes the headers of the answer just before it is sent.
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

// SetFault gives every later request the fault that f returns, or none if f returns nil. A
// nil f ends that. F is called from many goroutines.
func (s *Server) SetFault(f func(*Request) *Fault) { s.fault.Store(&f) }

func (s *Server) faultFor(req *Request) *Fault {
	if f := s.fault.Load(); f != nil && *f != nil {
		return cmp.Or((*f)(req), &Fault{})
	}
	return &Fault{}
}

// KeyErrors makes every later DeleteObjects fail for some keys with the given codes, and
// keep these keys. Nil ends that.
func (s *Server) KeyErrors(codes map[string]string) { s.keyErrors.Store(&codes) }

// Nth is a hook for [Server.SetFault]: the nth request of op from now on, from
// 1, gets the fault.
func Nth(op Op, n int, fault Fault) func(*Request) *Fault {
	var seen atomic.Int64
	return func(r *Request) *Fault {
		if r.Op == op && seen.Add(1) == int64(n) {
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
