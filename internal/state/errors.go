package state

import (
	"errors"
)

var (
	// ErrPruned: that version of the manifest was pruned or never existed, or that record
	// was truncated.
	ErrPruned = errors.New("manifest: pruned")
	// ErrVoid is returned by the function of an update that no longer makes sense on the
	// manifest that it was given. [Updater.Update] returns it and writes nothing.
	ErrVoid = errors.New("manifest: update is void")
)
