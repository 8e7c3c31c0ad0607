package faultstore

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"

	"github.com/fencepost/fencepost/store"
)

var (
	// ErrInjected is in every error that this package injects.
	ErrInjected = errors.New("faultstore: injected fault")
	// ErrCrashed is in every error that a crashed client gets.
	ErrCrashed = errors.New("faultstore: this client has crashed")
)

// Errors for Fault.Err. The operation and the key are filled in.
var (
	ErrTimeout     = &store.Error{Err: injected(os.ErrDeadlineExceeded)}
	ErrReset       = &store.Error{Err: injected(syscall.ECONNRESET)}
	ErrInternal    = &store.Error{Status: http.StatusInternalServerError, Code: "InternalError", Err: ErrInjected}
	ErrUnavailable = &store.Error{Status: http.StatusServiceUnavailable, Code: "SlowDown", Err: ErrInjected}
	ErrThrottled   = &store.Error{Status: http.StatusTooManyRequests, Code: "TooManyRequests", Err: ErrInjected}
	// ErrConflict is S3's 409: the outcome is unknown.
	ErrConflict = &store.Error{Status: http.StatusConflict, Code: "ConditionalRequestConflict", Err: ErrInjected}
	// ErrDenied rejects a request; use it with Drop.
	ErrDenied = &store.Error{Kind: store.ErrDenied, Status: http.StatusForbidden, Code: "AccessDenied", Err: ErrInjected}
	// ErrEcho is the 412 that a client gets for its own write, when a proxy has sent the
	// request twice.
	ErrEcho = &store.Error{Kind: store.ErrPrecondition, Status: http.StatusPreconditionFailed, Code: "PreconditionFailed", Err: ErrInjected}
)

func injected(cause error) error { return fmt.Errorf("%w: %w", ErrInjected, cause) }

// addressed fills in the operation and the key of an error of this package.
func addressed(err error, op Op) error {
	if e, ok := err.(*store.Error); ok && e.Op == "" { //nolint:errorlint // only an error that is bare itself is completed
		filled := *e
		filled.Op, filled.Key = string(op.Kind), op.Key
		return &filled
	}
	return err
}
