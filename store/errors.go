package store

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What an [Error] can be. Test with errors.Is.
var (
	// ErrNotFound: there is no object under the key.
	ErrNotFound = errors.New("store: no such object")
	// ErrNotModified: the object still has the version that the caller knows.
	ErrNotModified = errors.New("store: not modified")
	// ErrPrecondition: the store answered that the condition does not hold
	// (HTTP 412, or 404 for a match on a missing key).
	ErrPrecondition = errors.New("store: condition not met (412)")
	// ErrUnsupported: the store says that it cannot do what was asked (501).
	ErrUnsupported = errors.New("store: not supported")
	// ErrDenied: the credentials are missing, wrong or not sufficient.
	ErrDenied = errors.New("store: access denied")
	// ErrNoBucket: the bucket or root directory does not exist.
	ErrNoBucket = errors.New("store: no such bucket")
	// ErrInvalid: the request itself is malformed: a bad URL, a bad key.
	ErrInvalid = errors.New("store: invalid request")
	// ErrRange: the range begins at or past the end of the object.
	ErrRange = errors.New("store: range past the end")
	// ErrTooLarge: the object is larger than the reader allows.
	ErrTooLarge = errors.New("store: object too large")
	// ErrUnknown: a write was sent and nobody can tell whether it was, or ever
	// will be, applied.
	ErrUnknown = errors.New("store: outcome unknown")
)

// Error is what a driver returns: the operation, its key, and how the store
// answered.
type Error struct {
	// Op is "get", "put", "upload", "list" or "delete".
	Op  string
	Key string
	// Kind is one of the sentinels above, or nil if the answer tells nothing
	// (timeouts, resets, 409, 429, 5xx): then a write's outcome is unknown and a
	// read may be tried again.
	Kind error
	// Status is the HTTP status, 0 if there was none. Code is the store's error
	// code, often empty.
	Status int
	Code   string
	// RetryAfter is how long the store asked to wait, 0 if it did not say.
	RetryAfter time.Duration
	// Hint says in a sentence what to do about it; may be empty.
	Hint string
	// Err is the cause; may be nil.
	Err error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "store: %s %q", e.Op, e.Key)
	if e.Kind != nil {
		b.WriteString(": " + strings.TrimPrefix(e.Kind.Error(), "store: "))
	}
	switch {
	case e.Status != 0 && e.Code != "":
		fmt.Fprintf(&b, ": %d %s", e.Status, e.Code)
	case e.Status != 0:
		fmt.Fprintf(&b, ": status %d", e.Status)
	case e.Code != "":
		b.WriteString(": " + e.Code)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Outcome is what is known of a write.
type Outcome int

const (
	// Unknown: it may have been applied, may still be, or never. It is the zero
	// value, because it is the only safe thing to assume.
	Unknown Outcome = iota
	// Applied: it took place.
	Applied
	// Refused: the store evaluated the condition and it did not hold.
	Refused
	// Rejected: this attempt was turned away before any condition was looked at
	// (denied, malformed, unsupported), and wrote nothing.
	Rejected
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Refused:
		return "refused"
	case Rejected:
		return "rejected"
	}
	return "unknown"
}

// OutcomeOf tells the outcome of one attempt of Put or Upload from its error.
// Whatever is not recognised is [Unknown].
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Applied
	case errors.Is(err, ErrUnknown):
		return Unknown
	case errors.Is(err, ErrPrecondition):
		return Refused
	case Permanent(err):
		return Rejected
	}
	return Unknown
}

// Permanent reports whether trying again cannot help: the store understood the
// request and will not serve it.
func Permanent(err error) bool {
	for _, kind := range []error{ErrUnsupported, ErrDenied, ErrNoBucket, ErrInvalid} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}
