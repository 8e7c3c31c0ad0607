package store

import "errors"

// progress is what one call of Create or Swap knows of its own requests.
type progress struct {
	// swap tells a Swap from a Create.
	swap bool
	// inFlight: some request of this call may have been applied, or may still be.
	inFlight bool
	// contradictions is how often the store refused a condition and then showed that
	// the condition holds.
	contradictions int
}

// finding is what a read of the key has shown.
type finding int

const (
	unread     finding = iota // the key was not read since the last request
	own                       // the object has the bytes of this write
	unchanged                 // the object still has the version that a swap is to replace
	foreign                   // the object has other bytes
	absent                    // there is no object
	unreadable                // the store turned the read away, or the caller gave up
)

// step is what settle does next.
type step struct {
	action action
	pause  bool  // before the action
	cause  error // of giveUp; nil if the last error is the cause
}

type action int

const (
	accept action = iota // return success: the write is applied
	refuse               // return a ConflictError: the write is not applied and never will be
	reject               // return the store's error: nothing was sent before, and nothing written
	check                // read the key
	resend               // send the same bytes to the same key again
	giveUp               // return an error that is ErrUnknown
)

// decide returns what to do after a request with outcome o, when the key was found as f
// says. It does no I/O. The stories in testdata/decide.txt show it at work.
func decide(p progress, o Outcome, f finding) (progress, step) {
	switch {
	case o == Applied:
		return p, step{action: accept}

	// guard:own-nonce. A create or swap is applied if the object has the bytes of this write, whatever
	// the store answered.
	//
	//mutant:replace f == own => false
	case f == own:
		return p, step{action: accept}
	case f == foreign:
		return p, step{action: refuse}

	// guard:after-unknown. A rejection such as 403 is the outcome of a write only if no earlier request
	// of the same call can have been applied.
	//
	//mutant:replace !p.inFlight => true
	case o == Rejected && !p.inFlight:
		return p, step{action: reject}
	case o == Rejected, f == unreadable:
		// Even a plain 412 may be the echo of this very write: only a read can tell.
		return p, step{action: giveUp}
	case f == unread:
		p.inFlight = p.inFlight || o == Unknown
		return p, step{action: check, pause: o == Unknown}

	// guard:resend. A create of unknown outcome is sent again with the same bytes if the key is absent;
	// it is never reported as refused.
	//
	//mutant:replace f == absent && p.swap => f == absent
	case f == absent && p.swap:
		return p, step{action: refuse}
	}
	// The condition still holds. After a 412 that is a contradiction, or the 412 was the
	// echo of a copy that is just being applied.
	p.inFlight = true
	if o == Refused {
		if p.contradictions++; p.contradictions == maxContradictions {
			return p, step{action: giveUp, cause: contradiction(f)}
		}
	}
	// After an unknown outcome settle has paused already, before the read. A create
	// pauses again: its request may be about to land.
	return p, step{action: resend, pause: o == Refused || f == absent}
}

// maxContradictions is how often a store may refuse a condition and then show that it
// holds. Once is possible: a store may count a write that it is still working on.
const maxContradictions = 10

var (
	errRefusedShown  = errors.New("the store refuses the very version that it shows; its conditional writes cannot be used")
	errRefusedAbsent = errors.New("the store refuses to create a key that it says does not exist; its conditional writes cannot be used")
)

func contradiction(f finding) error {
	if f == absent {
		return errRefusedAbsent
	}
	return errRefusedShown
}
