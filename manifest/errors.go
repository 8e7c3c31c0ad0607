package manifest

import (
	"errors"
)

var (
	// ErrNotInitialized: there is no format.json, so there is no log here.
	ErrNotInitialized = errors.New("manifest: no log here")
	// ErrPinLost: somebody has taken the pin away, or it was not renewed in time.
	// What it held may have been deleted.
	ErrPinLost = errors.New("manifest: pin lost")
	// ErrNoPin: no pin has that name.
	ErrNoPin = errors.New("manifest: no such pin")
)
