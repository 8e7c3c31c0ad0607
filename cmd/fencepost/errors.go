package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var (
	errUsage   = errors.New("usage")
	errOutcome = errors.New("outcome unknown")
	// errDamaged: verify has found damage, and has printed it.
	errDamaged = errors.New("damaged")
	// errQuiet: the reader of standard output has gone; there is nobody to tell.
	errQuiet = errors.New("standard output is closed")
)

// kindError is err with the exit status of kind. Its text is that of err.
type kindError struct {
	kind error
	err  error
}

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

func usage(format string, args ...any) error {
	return &kindError{errUsage, fmt.Errorf(format, args...)}
}

// written returns the error of a write to standard output.
func written(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return errQuiet
	}
	return fmt.Errorf("writing to standard output: %w", err)
}

// line returns an error as one line, with what to do about it.
func line(err error) string {
	s := printable(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
	if r := remedy(err); r != "" {
		s += " (" + r + ")"
	}
	return s
}

// remedy says what to do about an error that does not say it itself.
func remedy(err error) string {
	switch {
	case strings.Contains(err.Error(), "fencepost verify"):
	case errors.Is(err, manifest.ErrNotInitialized), errors.Is(err, fence.ErrFormat), errors.Is(err, leader.ErrCorrupt):
	case errors.Is(err, fence.ErrCorrupt) && strings.Contains(err.Error(), " "+group.Prefix):
		return "see docs/groups.md"
	case errors.Is(err, fence.ErrCorrupt):
		return "run `fencepost verify` to see the extent"
	case errors.Is(err, writer.ErrTooLarge):
		return "the log was made with these limits; see `fencepost status`"
	case errors.Is(err, store.ErrDenied):
		if e, ok := errors.AsType[*store.Error](err); !ok || e.Hint == "" {
			return "check the credentials, and which requests they allow"
		}
	}
	return ""
}

// unread is the error of work that would go on for ever if its JSON could be written. It does not wrap err: a closed
// pipe ends other verbs with status 0, in silence, and here the work would have stopped unnoticed.
func unread(what string, err error) error {
	return errors.New(what + " ends, since its JSON cannot be written any more: " + err.Error())
}
