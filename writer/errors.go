package writer

import (
	"errors"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

var (
	// ErrFenced is package fence's: a successor has taken over. It is final: this writer
	// sends nothing more. The fate of each append in flight is settled first. See
	// [fence.FencedError] for by whom.
	ErrFenced = fence.ErrFenced
	// ErrClosed: the writer was closed, or its term is over.
	ErrClosed = errors.New("writer: closed")
	// ErrNotCommitted: the records are not in the history and never will be. They
	// may be appended again, by the next leader.
	ErrNotCommitted = errors.New("writer: not committed")
	// ErrUnknown: the records may be in the history or not, and nobody can tell
	// yet. They must not be appended again: open a writer and look at the cursor
	// that it recovers.
	ErrUnknown = errors.New("writer: outcome unknown")
	// ErrTooLarge: a record, a cursor or the whole append is over the limits in
	// format.json. Nothing was written; the writer goes on.
	ErrTooLarge = errors.New("writer: too large")
	// ErrConflict: an edit does not fit the table. Nothing was written; the writer
	// goes on.
	ErrConflict = errors.New("writer: conflict")
	// ErrAborted: the file was given up by Abort.
	ErrAborted = errors.New("writer: file aborted")
)

// ConflictError says which file of an edit is in the way. It is [ErrConflict].
type ConflictError struct {
	Key string
	// Why is what is wrong with it, for people.
	Why string
}

func (e *ConflictError) Error() string { return "writer: conflict: file " + e.Key + " " + e.Why }

// Is makes a ConflictError an [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// AppendError is why an append was not acknowledged. It is [ErrNotCommitted] or
// [ErrUnknown], and wraps the reason.
type AppendError struct {
	// Outcome is store.Refused if the records are certainly not in the history,
	// store.Unknown if they may be.
	Outcome store.Outcome
	Err     error
}

func (e *AppendError) Error() string { return e.kind().Error() + ": " + e.Err.Error() }

func (e *AppendError) kind() error {
	if e.Outcome == store.Unknown {
		return ErrUnknown
	}
	return ErrNotCommitted
}

// Unwrap returns ErrNotCommitted or ErrUnknown, and the reason.
func (e *AppendError) Unwrap() []error { return []error{e.kind(), e.Err} }

func notCommitted(err error) error { return &AppendError{Outcome: store.Refused, Err: err} }

func unknown(err error) error { return &AppendError{Outcome: store.Unknown, Err: err} }
