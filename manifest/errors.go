package manifest

import (
	"errors"

	"github.com/fencepost/fencepost/internal/files"
)

var (
	// ErrNotInitialized: there is no format.json, so there is no log here.
	ErrNotInitialized = errors.New("manifest: no log here")
	// ErrOptions: options that cannot work. The error names all that is wrong.
	ErrOptions = errors.New("manifest: invalid options")
	// ErrFiles: the store for files is missing, superfluous, or not that of the log. The error
	// says what to give.
	ErrFiles = files.ErrStore
	// ErrBackup: the place is a backup, where nobody but the next backup writes.
	ErrBackup = errors.New("manifest: this is a backup, which is read only: restore it to a place of its own (`fencepost restore`), and use that")
	// ErrRestoring: a restore to this place has begun and has not ended. It is no log yet, and nobody but that restore
	// writes there.
	ErrRestoring = errors.New("manifest: a restore to here is under way, or was interrupted: let it end, or run the same `fencepost restore` again")
	// ErrPinLost: the pin was expired by somebody else, or was not renewed in time. What
	// it held may be deleted.
	ErrPinLost = errors.New("manifest: pin lost")
	// ErrNoPin: no pin has that name.
	ErrNoPin = errors.New("manifest: no such pin")
)
