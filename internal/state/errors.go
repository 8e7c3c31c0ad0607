package state

import (
	"errors"
)

var (
	// ErrGone: that version of the manifest was pruned or never existed, or that record
	// was given up.
	ErrGone = errors.New("manifest: gone")
	// ErrVoid is returned by the function of an update that no longer makes sense on the
	// manifest that it was given. [Updater.Update] returns it and writes nothing.
	ErrVoid = errors.New("manifest: update is void")
)
