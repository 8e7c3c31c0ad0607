package fence

import (
	"cmp"
	"errors"
	"fmt"
)

var (
	// ErrCorrupt: an object is damaged, or cannot be where it is: no correct program of
	// this project writes it so.
	ErrCorrupt = errors.New("fence: corrupt object")
	// ErrFormat: the object was written by a newer version of this project.
	ErrFormat = errors.New("fence: unknown format")
	// ErrLimit: a record, cursor or object is larger than the log allows, or no log can
	// have the given limits.
	ErrLimit = errors.New("fence: over the limit")
)

// ErrFenced: a later epoch, or another holder of the same token, has taken over. It
// is final for the token.
var ErrFenced = errors.New("fence: fenced")

// FencedError says which epoch was refused and because of which. It is [ErrFenced].
type FencedError struct {
	// Role is who was refused: "writer" or "compactor"; empty if a [Gate] or a register has
	// refused.
	Role string
	// Epoch was refused because of By, a later one. They are equal if another process
	// was given the same token.
	Epoch, By Epoch
	// Key is the object that refused with 412: a writer's next slot, where its
	// successor's seal is. Empty if the successor was met elsewhere.
	Key string
	// Err is the store's answer, if there was one.
	Err error
}

func (e *FencedError) Error() string {
	switch {
	case e.Epoch == 0:
		return "fenced: epoch 0 gives no right; epochs begin at 1"
	case e.By == e.Epoch:
		return fmt.Sprintf("fenced: another %s was given the same token, of epoch %d; every one needs a new token", cmp.Or(e.Role, "holder"), e.Epoch)
	case e.Role == "":
		return fmt.Sprintf("fenced: epoch %d has been replaced by epoch %d", e.Epoch, e.By)
	case e.Key != "":
		return fmt.Sprintf("fenced: 412 on %s, sealed by epoch %d", e.Key, e.By)
	}
	return fmt.Sprintf("fenced: the %s of epoch %d has been replaced by that of epoch %d", e.Role, e.Epoch, e.By)
}

// Unwrap makes a FencedError an [ErrFenced], and returns the store's answer too.
func (e *FencedError) Unwrap() []error {
	if e.Err == nil {
		return []error{ErrFenced}
	}
	return []error{ErrFenced, e.Err}
}
