package state

import (
	"errors"
)

var (
	// ErrGone: that version of the manifest has been pruned, or never was; or that
	// record has been given up.
	ErrGone = errors.New("manifest: gone")
	// ErrVoid is what an update's function returns when the update no longer
	// makes sense on the manifest that it was given. [Updater.Update] passes it on
	// and writes nothing.
	ErrVoid = errors.New("manifest: update is void")
)
