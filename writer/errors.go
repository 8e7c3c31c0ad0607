package writer

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

var (
	// ErrFenced: a successor has taken over. It is final: this writer sends nothing
	// more. What was under way is settled one by one.
	ErrFenced = errors.New("writer: fenced")
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

// FencedError says what stopped a writer. It is [ErrFenced].
type FencedError struct {
	// Epoch is the writer's own; By is the successor's, or the same if another
	// process was given the same token.
	Epoch, By fence.Epoch
	// Slot is the object that refused the writer's own with 412: the seal in the
	// slot that it wanted. Empty if the writer learned of its successor otherwise.
	Slot string
	// Err is the store's answer, if there was one.
	Err error
}

func (e *FencedError) Error() string {
	switch {
	case e.By == e.Epoch:
		return fmt.Sprintf("writer: fenced: epoch %d has been opened by another process with the same token; every opening needs a new one", e.Epoch)
	case e.Slot != "":
		return fmt.Sprintf("writer: fenced: 412 on %s, sealed by epoch %d", e.Slot, e.By)
	}
	return fmt.Sprintf("writer: fenced: epoch %d has been replaced by epoch %d", e.Epoch, e.By)
}

// Is makes a FencedError an [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// Unwrap returns the store's answer.
func (e *FencedError) Unwrap() error { return e.Err }

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
