package faultstore

import (
	"strings"
	"sync"
	"time"

	"github.com/fencepost/fencepost/store"
)

// Kind is the kind of an operation, as in store.Error.Op.
type Kind string

// The operations of a store.
const (
	Get    Kind = "get"
	Put    Kind = "put"
	Upload Kind = "upload"
	List   Kind = "list"
	Delete Kind = "delete"
)

// Op is one request.
type Op struct {
	// N numbers the requests of all clients, from 1; ClientN those of this one.
	N, ClientN int
	// Client is the name given to [Store.Client], "" for the first.
	Client string
	Kind   Kind
	// Key is the prefix of a listing and the first key of a Delete.
	Key string
	// Keys are all keys of a Delete.
	Keys []string
	// Cond is the condition of a Put, and [store.IfAbsent()] of an Upload with
	// Create.
	Cond store.Condition
	// Size is the length of a Put's body in bytes.
	Size int
	// Offset is the first byte that a Get asks for.
	Offset int64
}

// Fault is what happens to one request. Its parts combine freely, in the order that the
// package comment tells; the zero value is no fault.
type Fault struct {
	// Delay is how long the request takes to the store, ReplyDelay how long its
	// reply takes back, both on Options.Clock. The caller's context ends both.
	Delay, ReplyDelay time.Duration
	// Hold keeps the request from reaching the store until it is closed, and
	// HoldReply its reply from the caller, or until the caller's context ends.
	Hold, HoldReply <-chan struct{}
	// Drop loses the request: it is not applied now.
	Drop bool
	// Late lets a copy of a write land later: with Drop in place of now, else in addition.
	// Reads are never late.
	Late *Late
	// Cut ends a transfer after Keep bytes of the body of a Get or an Upload, or after Keep
	// entries of a listing. Err is the error there. If Err is nil, a Get's body ends as if
	// it were complete, and the others end with a reset.
	Cut  bool
	Keep int
	// Err is what the caller gets in place of the store's reply. Nil lets the reply through;
	// with Drop, which leaves no reply, nil means [ErrReset].
	Err error
	// Hang gives the caller no answer at all until its context ends.
	Hang bool
	// Crash ends the client at this request, as [Store.Crash] does. With Drop the request is
	// not applied, else it is applied and its reply is lost.
	Crash bool
}

// Late says when a late request lands: when Ops or After is due, or, if neither is set,
// only at [Store.Release].
type Late struct {
	// Ops counts further requests, of all clients.
	Ops int
	// After is measured on Options.Clock.
	After time.Duration
	// Copies is how often it lands; 0 means once. Each copy waits again.
	Copies int
}

// Hook returns the fault of a request. It is called once for each request, without locks,
// in the goroutine that makes the request.
type Hook func(Op) Fault

// Rule gives a fault to some of the requests that match it.
type Rule struct {
	// Kind, Prefix (of Op.Key) and Client match everything if empty.
	Kind   Kind
	Prefix string
	Client string
	// Skip is how many matching requests get through first.
	Skip int
	// Times is how many get the fault after that: 0 means one, negative all.
	Times int
	Fault Fault
}

// Script returns a hook that follows rules. Every rule counts the requests that match it.
// The first rule whose turn it is decides.
func Script(rules ...Rule) Hook {
	var mu sync.Mutex
	seen := make([]int, len(rules))
	return func(op Op) (fault Fault) {
		mu.Lock()
		defer mu.Unlock()
		found := false
		for i, r := range rules {
			if r.Kind != "" && r.Kind != op.Kind || !strings.HasPrefix(op.Key, r.Prefix) || r.Client != "" && r.Client != op.Client {
				continue
			}
			seen[i]++
			turn := seen[i] - r.Skip
			if !found && turn >= 1 && (r.Times < 0 || turn <= max(r.Times, 1)) {
				fault, found = r.Fault, true
			}
		}
		return fault
	}
}
