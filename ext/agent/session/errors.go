package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

var (
	// ErrInvalid: the client has sent what makes no sense. The text says what to do.
	ErrInvalid = errors.New("session: invalid message")
	// ErrOptions: an option has a value that cannot work.
	ErrOptions = errors.New("session: wrong options")
	// ErrSilent: the client was silent for longer than it has promised.
	ErrSilent = errors.New("session: the client was silent")
	// ErrUnread: the client has not read what it was told.
	ErrUnread = errors.New("session: the client does not read")
	// ErrBusy: another process leads, and the client does not want to wait.
	ErrBusy = errors.New("session: another process leads")
)

// Code is why a session has ended, for programs.
type Code string

// The codes.
const (
	CodeFenced  Code = "fenced"  // another process leads, or the term has expired
	CodeInvalid Code = "invalid" // a message of the client
	CodeSilent  Code = "silent"
	CodeUnread  Code = "unread"
	CodeBusy    Code = "busy"
	CodeGone    Code = "gone"    // the client's stream was cut
	CodeStopped Code = "stopped" // the process was told to end, or the client has resigned
	CodeDenied  Code = "denied"  // the store refuses the credentials
	CodeFailed  Code = "failed"  // whatever else the text says
)

// EndError is why a session has ended before the client was done.
type EndError struct {
	Code Code
	// Of the messages that were not committed, the first Unknown may be in the history, and the next
	// NotCommitted are certainly not.
	Unknown, NotCommitted int
	Err                   error
}

func (e *EndError) Error() string {
	why := strings.ReplaceAll(e.Err.Error(), "\n", "; ")
	switch {
	case e.Unknown > 0:
		return fmt.Sprintf("it is unknown whether the last %d messages are in the log, and %d after them are not; connect again and continue at the cursor: %s", e.Unknown, e.NotCommitted, why)
	case e.NotCommitted > 0:
		return fmt.Sprintf("the last %d messages are not in the log; connect again and continue at the cursor: %s", e.NotCommitted, why)
	}
	return why
}

func (e *EndError) Unwrap() error { return e.Err }

func codeOf(err error) Code {
	for _, c := range []struct {
		err  error
		code Code
	}{
		{ErrInvalid, CodeInvalid},
		{ErrOptions, CodeInvalid},
		{writer.ErrTooLarge, CodeInvalid},
		{writer.ErrConflict, CodeInvalid},
		{ErrSilent, CodeSilent},
		{ErrUnread, CodeUnread},
		{ErrBusy, CodeBusy},
		{errGone, CodeGone},
		{fence.ErrFenced, CodeFenced},
		{leader.ErrResigned, CodeStopped},
		{leader.ErrLost, CodeFenced},
		{store.ErrDenied, CodeDenied},
		{manifest.ErrBackup, CodeInvalid},
		{context.Canceled, CodeStopped},
	} {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return CodeFailed
}

var (
	errGone = errors.New("session: the client's stream was cut")
	errDone = errors.New("session: the client is done")
)
