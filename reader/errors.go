package reader

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
)

var (
	// ErrGone: what is asked for has been deleted by retention, or pruned. What can
	// be had instead is in the error's text; see also [GoneError].
	ErrGone = errors.New("reader: gone")
	// ErrAhead: the log has not come as far as the moment that is asked for.
	ErrAhead = errors.New("reader: not there yet")
	// ErrPinLost is package manifest's: what a snapshot holds on to was given up.
	ErrPinLost = manifest.ErrPinLost
	// ErrCorrupt is package fence's: an object of the log is damaged or missing.
	ErrCorrupt = fence.ErrCorrupt
	// ErrFormat is package fence's: the log was written by a newer version.
	ErrFormat = fence.ErrFormat
	// ErrNotInitialized is package manifest's: there is no log here.
	ErrNotInitialized = manifest.ErrNotInitialized
)

// GoneError says that the record at an offset was deleted by retention. It is
// [ErrGone].
type GoneError struct {
	Offset uint64
	// First is where the log begins now.
	First uint64
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("%v: offset %d; the log begins at %d", ErrGone, e.Offset, e.First)
}

// Is makes a GoneError an [ErrGone].
func (e *GoneError) Is(target error) bool { return target == ErrGone }
