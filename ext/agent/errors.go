package agent

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/fencepost/fencepost/ext/agent/session"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// codes are the statuses of errors; the first that fits counts.
var codes = []struct {
	err  error
	code connect.Code
}{
	// Nothing that is unknown may look as if it were refused: clients retry what was aborted.
	{writer.ErrUnknown, connect.CodeUnknown},
	{store.ErrUnknown, connect.CodeUnknown},
	{session.ErrInvalid, connect.CodeInvalidArgument},
	{session.ErrOptions, connect.CodeInvalidArgument},
	{session.ErrSilent, connect.CodeDeadlineExceeded},
	{session.ErrUnread, connect.CodeDeadlineExceeded},
	{session.ErrBusy, connect.CodeFailedPrecondition},
	{writer.ErrTooLarge, connect.CodeInvalidArgument},
	{writer.ErrConflict, connect.CodeInvalidArgument},
	{fence.ErrFenced, connect.CodeAborted},
	{leader.ErrResigned, connect.CodeUnavailable},
	{leader.ErrLost, connect.CodeAborted},
	{writer.ErrNotCommitted, connect.CodeAborted},
	{reader.ErrGone, connect.CodeOutOfRange},
	{reader.ErrOptions, connect.CodeInvalidArgument},
	{register.ErrOptions, connect.CodeInvalidArgument},
	{manifest.ErrNotInitialized, connect.CodeNotFound},
	{store.ErrNotFound, connect.CodeNotFound},
	{store.ErrNoBucket, connect.CodeNotFound},
	{store.ErrInvalid, connect.CodeInvalidArgument},
	{store.ErrDenied, connect.CodePermissionDenied},
	{manifest.ErrBackup, connect.CodeFailedPrecondition},
	{fence.ErrCorrupt, connect.CodeDataLoss},
	{fence.ErrFormat, connect.CodeFailedPrecondition},
	{context.DeadlineExceeded, connect.CodeDeadlineExceeded},
	{context.Canceled, connect.CodeCanceled},
}

// status gives an error its code.
func status(err error) error {
	if err == nil {
		return nil
	}
	if c, ok := errors.AsType[*connect.Error](err); ok {
		return c
	}
	if end, ok := errors.AsType[*session.EndError](err); ok {
		switch {
		case end.Unknown > 0:
			return connect.NewError(connect.CodeUnknown, err)
		case end.Code == session.CodeStopped:
			return connect.NewError(connect.CodeUnavailable, err)
		}
	}
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return connect.NewError(c.code, err)
		}
	}
	return connect.NewError(connect.CodeInternal, err)
}
