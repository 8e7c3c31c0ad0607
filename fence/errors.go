package fence

import (
	"errors"
)

var (
	// ErrCorrupt: bytes that are not what a writer of this project writes, or an
	// object that cannot stand where it stands on the chain.
	ErrCorrupt = errors.New("fence: corrupt object")
	// ErrFormat: the object was written by a newer version of this project.
	ErrFormat = errors.New("fence: unknown format")
	// ErrLimit: a record, cursor or object is larger than the log allows, or
	// limits that no log can have.
	ErrLimit = errors.New("fence: over the limit")
)
