package store

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The kinds of an [Error]. Test with errors.Is. Options that cannot work are [ErrInvalid]
// too.
var (
	// ErrNotFound: there is no object under the key.
	ErrNotFound = errors.New("store: no such object")
	// ErrNotModified: the object still has the version that the caller knows.
	ErrNotModified = errors.New("store: not modified")
	// ErrPrecondition: the store checked the condition and it does not hold (HTTP 412, or
	// 404 for a match on a missing key).
	ErrPrecondition = errors.New("store: condition not met (412)")
	// ErrUnsupported: the store says that it cannot do what was asked (501).
	ErrUnsupported = errors.New("store: not supported")
	// ErrDenied: the credentials are missing, wrong or insufficient.
	ErrDenied = errors.New("store: access denied")
	// ErrNoBucket: the bucket or root directory does not exist.
	ErrNoBucket = errors.New("store: no such bucket or directory")
	// ErrInvalid: the request cannot work: a bad URL, key, range or option.
	ErrInvalid = errors.New("store: invalid request")
	// ErrRange: the range begins at or past the end of the object.
	ErrRange = errors.New("store: range past the end")
	// ErrTooLarge: the object is larger than the caller of [Read] allows.
	ErrTooLarge = errors.New("store: object too large")
	// ErrUnknown: a write was sent, and nobody can tell whether it was applied or will be.
	ErrUnknown = errors.New("store: outcome unknown")
	// ErrUnreachable: the store did not answer in the time that a program has for its first
	// request, such as fencepost.Options.Contact.
	ErrUnreachable = errors.New("store: unreachable")
)

// Error is what a driver returns: the operation, its key, and what the store answered.
type Error struct {
	// Op is "open", "get", "put", "upload", "list", "delete" or "abort".
	Op string
	// Key is the key or prefix; of "open" the URL without what may be a secret.
	Key string
	// Kind is one of the sentinels above. It is nil if the answer, or its lack, tells
	// nothing (timeouts, resets, 408, 409, 429, 5xx): then the outcome of a write is
	// unknown, and a read can be retried.
	Kind error
	// Status is the HTTP status, 0 if there was none. Code is the store's error
	// code, often empty.
	Status int
	Code   string
	// RetryAfter is how long the store asked to wait, 0 if it did not say.
	RetryAfter time.Duration
	// Hint says in one sentence what to do; may be empty.
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

// Outcome is what is known of a write: see the package comment.
type Outcome int

const (
	// Unknown: the write may have been applied, or may still be. It is the zero value,
	// the only safe thing to assume.
	Unknown Outcome = iota
	// Applied: the write took place.
	Applied
	// Refused: the store checked the condition, and it did not hold.
	Refused
	// Rejected: the store turned this attempt away before it checked the condition
	// (denied, invalid, unsupported). The attempt wrote nothing.
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

// OutcomeOf returns the outcome of a write from its error: of Put and Upload, [Create],
// [Swap] and [UploadNew]. Every error that it does not know is [Unknown].
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

// ConflictError says that a conditional write was refused, and what is there
// instead. It is [ErrPrecondition].
type ConflictError struct {
	// Found is the object now under the key. Its Version is empty if there is none:
	// a [Swap] of a key that was deleted.
	Found Info
	// Body is the beginning of the found object's body: as many bytes as
	// WriteOptions.Identity says, or as the refused body has if that is 0.
	Body []byte
}

func (e *ConflictError) Error() string {
	what := "another object is there"
	if e.Found.Version == "" {
		what = "the object is gone"
	}
	return fmt.Sprintf("store: put %q: condition not met (412): %s", e.Found.Key, what)
}

// Is makes a ConflictError an [ErrPrecondition].
func (e *ConflictError) Is(target error) bool { return target == ErrPrecondition }

// unknownError says that the outcome of a conditional write is not known. It is
// [ErrUnknown].
type unknownError struct {
	key      string
	attempts int
	// err is why the last attempt did not tell, cause why there was no other.
	err, cause error
}

func (e *unknownError) Error() string {
	return fmt.Sprintf("store: put %q: outcome unknown after %d attempts: %v (gave up: %v)", e.key, e.attempts, e.err, e.cause)
}

// Unwrap returns [ErrUnknown], the cause and the last error, but no refusal: a write
// that may have been applied must not pass for [ErrPrecondition].
func (e *unknownError) Unwrap() []error {
	errs := []error{ErrUnknown}
	for _, err := range []error{e.cause, e.err} {
		if err != nil && !errors.Is(err, ErrPrecondition) {
			errs = append(errs, err)
		}
	}
	return errs
}

// Permanent reports whether a retry cannot help: the store understood the request and
// will not serve it.
func Permanent(err error) bool {
	kinds := []error{ErrUnsupported, ErrDenied, ErrNoBucket, ErrInvalid}
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
