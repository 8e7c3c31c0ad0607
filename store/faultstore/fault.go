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
	// Abort is AbortUploads, under the prefix.
	Abort Kind = "abort"
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
}

// Fault is what befalls one request. Its parts combine freely; the zero value
// is no fault. See the package's documentation for their order.
type Fault struct {
	// Delay is how long the request takes to the store, ReplyDelay how long its
	// reply takes back, both on Options.Clock. The caller's context ends both.
	Delay, ReplyDelay time.Duration
	// Hold keeps the request from reaching the store until it is closed, and
	// HoldReply its reply from the caller, or until the caller's context ends.
	Hold, HoldReply <-chan struct{}
	// Drop loses the request: it is not applied now.
	Drop bool
	// Late lets a copy of a write land later on, instead of (with Drop) or in
	// addition to now. Reads are never late.
	Late *Late
	// Cut breaks a transfer off after Keep bytes of a Get's or an Upload's body,
	// or after Keep entries of a listing. Err is the error there, and nil means
	// that a Get's body ends as if it were complete, and a reset for the others.
	Cut  bool
	Keep int
	// Err is what the caller hears in place of the store's reply; nil lets the
	// reply through, and is [ErrReset] if Drop leaves no reply.
	Err error
	// Hang gives the caller no answer at all until its context ends.
	Hang bool
	// Crash ends the client at this request, as [Store.Crash] does: before it is
	// applied with Drop, else after it and before the reply.
	Crash bool
}

// Late says when a late request lands: after whichever is set, and with
// neither only at [Store.Release].
type Late struct {
	// Ops counts further requests, of all clients.
	Ops int
	// After is measured on Options.Clock.
	After time.Duration
	// Copies is how often it lands; 0 means once. Each copy waits anew.
	Copies int
}

// Hook chooses the fault of a request. It is called for each request in its
// turn, without locks, by the goroutine that makes the request.
type Hook func(Op) Fault

// Rule gives a fault to some of the requests that match it.
type Rule struct {
	// Kind, Prefix (of Op.Key) and Client match everything if empty.
	Kind   Kind
	Prefix string
	Client string
	// Skip lets the first matching requests through.
	Skip int
	// Times is how many get the fault after that: 0 means one, negative all.
	Times int
	Fault Fault
}

// Script returns a hook that goes by rules. Every rule counts the requests that
// match it; the first one whose turn it is decides.
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

// zero reports whether f changes nothing. Fault is not comparable as a whole
// only if an Err of an uncomparable type is in it, so it is asked part by part.
func (f *Fault) zero() bool {
	return f.Delay == 0 && f.ReplyDelay == 0 && f.Hold == nil && f.HoldReply == nil && !f.Drop && f.Late == nil &&
		!f.Cut && f.Err == nil && !f.Hang && !f.Crash
}
