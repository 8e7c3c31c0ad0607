package kit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/ext/group"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// Exit statuses.
const (
	ExitOK      = 0
	ExitFailed  = 1
	ExitUnknown = 3  // append: unknown whether some records are in the log
	ExitUsage   = 64 // as the next ones of sysexits.h; a Go program that crashes ends with 2
	ExitDamaged = 65 // damage, or what verify and doctor call a problem
	ExitNoLog   = 66 // nothing is there: no log, group, directory or bucket
	ExitAway    = 69 // the store does not answer
	ExitBusy    = 75 // exec: somebody else leads
	ExitLost    = 76 // exec: the command was ended because the lead was lost
	ExitFenced  = 77 // a later epoch has refused this one

	// Shells use these in this way.
	ExitNotRunnable = 126
	ExitNotFound    = 127
	ExitSignal      = 128
)

// Kinds of errors, with an exit status each.
var (
	ErrUsage   = errors.New("usage")
	ErrOutcome = errors.New("outcome unknown")
	ErrRefused = errors.New("refused by a later epoch")
	// ErrDamaged: verify has found damage, and has printed it.
	ErrDamaged = errors.New("damaged")
	// ErrQuiet: the reader of standard output has gone; there is nobody to tell.
	ErrQuiet = errors.New("standard output is closed")
)

// Status is the exit status for an error.
func Status(err error) int {
	var i *InterruptedError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrOutcome): // also if a signal has caused it
		return ExitUnknown
	case errors.As(err, &i):
		return ExitSignal + int(i.Signal)
	case errors.Is(err, ErrRefused):
		return ExitFenced
	case errors.Is(err, ErrUsage):
		return ExitUsage
	case errors.Is(err, ErrDamaged), errors.Is(err, fence.ErrCorrupt):
		return ExitDamaged
	case errors.Is(err, manifest.ErrNotInitialized), errors.Is(err, group.ErrNoGroup), errors.Is(err, store.ErrNoBucket):
		return ExitNoLog
	case errors.Is(err, store.ErrUnreachable), Passing(err):
		return ExitAway
	}
	return ExitFailed
}

// CodeError ends the process with a status of its own. What there is to say has been said.
type CodeError int

func (e CodeError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// CannotRun ends with the status that shells give a command that is not there, or cannot be run.
func (k *Kit) CannotRun(err error) error {
	k.Console.Note("fencepost: %v", err)
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		return CodeError(ExitNotFound)
	}
	return CodeError(ExitNotRunnable)
}

// kindError is err with the exit status of kind. Its text is that of err.
type kindError struct {
	kind error
	err  error
}

func (e *kindError) Error() string   { return e.err.Error() }
func (e *kindError) Unwrap() []error { return []error{e.kind, e.err} }

// Kind returns err with the exit status of a kind.
func Kind(kind, err error) error { return &kindError{kind, err} }

// Usage is an error of the user.
func Usage(format string, args ...any) error { return Kind(ErrUsage, fmt.Errorf(format, args...)) }

// Refused says that a gate has refused an epoch.
func (k *Kit) Refused(err error) error {
	if errors.Is(err, fence.ErrFenced) {
		k.Console.Note("fencepost: %s", Line(err))
		return CodeError(ExitFenced)
	}
	return err
}

// written returns the error of a write to standard output.
func written(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return ErrQuiet
	}
	return fmt.Errorf("writing to standard output: %w", err)
}

// Line returns an error as one line, with what to do about it.
func Line(err error) string {
	s := Printable(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
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
	case errors.Is(err, fence.ErrCorrupt) && strings.Contains(err.Error(), " locks/"):
		return "put an older version of the object back, if the bucket keeps them; do not delete it, since tokens would begin again at 1"
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

// Unread is the error of work that would go on for ever if its JSON could be written. It does not wrap err: a closed
// pipe ends other verbs with status 0, in silence, and here the work would have stopped unnoticed.
func Unread(what string, err error) error {
	return errors.New(what + " ends, since its JSON cannot be written any more: " + err.Error())
}

// Ends counts nothing more after ctx has ended; it returns ctx's cause if err is that.
func Ends(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Passing reports whether an error is a failure of the store that may pass.
func Passing(err error) bool {
	var failed *store.Error
	return errors.Is(err, store.ErrUnknown) || errors.As(err, &failed) && failed.Kind == nil
}
