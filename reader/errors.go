package reader

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/manifest"
)

var (
	// ErrOptions: an option is invalid. The text shows each fault.
	ErrOptions = errors.New("reader: invalid options")
	// ErrGone: the records were deleted by retention, or the version was pruned. The
	// text says what is still there; see also [GoneError].
	ErrGone = errors.New("reader: gone")
	// ErrNoPin: no pin has that name.
	ErrNoPin = manifest.ErrNoPin
	// ErrPinLost: a pin was expired, or it could not be renewed in time. What it held
	// may have been deleted.
	ErrPinLost = manifest.ErrPinLost
	// ErrCorrupt: an object of the log is damaged or missing.
	ErrCorrupt = fence.ErrCorrupt
	// ErrFormat: a newer version of this project has written the log.
	ErrFormat = fence.ErrFormat
	// ErrNotInitialized: the store holds no log.
	ErrNotInitialized = manifest.ErrNotInitialized
)

// GoneError says that retention has deleted the record at an offset. It is [ErrGone].
type GoneError struct {
	Offset uint64
	// First is the offset of the first record that is left.
	First uint64
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("%v: offset %d; the log begins at %d", ErrGone, e.Offset, e.First)
}

// Is makes a GoneError an [ErrGone].
func (e *GoneError) Is(target error) bool { return target == ErrGone }

var (
	// errMoved: the newest manifest no longer needs what was being read. The floor has
	// passed it, or a merge has replaced its segment. Begin again with that manifest.
	errMoved = chain.ErrMoved
	// errStopped: the caller has ended the loop, or all that was wanted is delivered.
	errStopped = errors.New("reader: stopped")
)

// damaged makes the error of an object that is damaged or missing.
func damaged(err error) error { return fmt.Errorf("reader: %w", &chain.DamagedError{Err: err}) }
