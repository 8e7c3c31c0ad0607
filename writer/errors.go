package writer

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
)

var (
	// ErrFenced: a successor has taken over. It is final: this writer sends nothing more.
	// The outcome of each append in flight is found out first. It is package fence's; a
	// [fence.FencedError] says which epoch it was.
	ErrFenced = fence.ErrFenced
	// ErrClosed: the writer was closed, or the context of Until is over.
	ErrClosed = errors.New("writer: closed")
	// ErrNotCommitted: the records are not in the history and never will be. They may be
	// appended again, by this writer if it goes on, or by the next leader.
	ErrNotCommitted = errors.New("writer: not committed")
	// ErrUnknown: the records may be in the history or not, and that is not known yet. Do
	// not append them again: open a writer in a new epoch and read the cursor that it
	// recovers.
	ErrUnknown = errors.New("writer: outcome unknown")
	// ErrTooLarge: a record, a cursor, an edit or the whole append is over the limits of
	// the log. Nothing was written; the writer goes on.
	ErrTooLarge = errors.New("writer: too large")
	// ErrConflict: an edit does not fit the table. The error names the file. Nothing was
	// written; the writer goes on.
	ErrConflict = errors.New("writer: conflict")
	// ErrAborted: the file was ended by Abort.
	ErrAborted = errors.New("writer: file aborted")
	// ErrOptions: the options contradict one another or the log.
	ErrOptions = errors.New("writer: invalid options")
)

// conflict says which file of an edit does not fit the table, and why.
func conflict(key, why string) error { return fmt.Errorf("%w: file %s %s", ErrConflict, key, why) }

func notCommitted(err error) error { return fmt.Errorf("%w: %w", ErrNotCommitted, err) }

func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknown, err) }
