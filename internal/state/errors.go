package state

import (
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
)

var (
	// ErrFenced: a later epoch, or another process with the same token, has taken
	// over the role. It is final for this token.
	ErrFenced = errors.New("manifest: fenced")
	// ErrGone: that version of the manifest has been pruned, or never was; or that
	// record has been given up.
	ErrGone = errors.New("manifest: gone")
	// ErrVoid is what an update's function returns when the update no longer
	// makes sense on the manifest that it was given. [Updater.Update] passes it on
	// and writes nothing.
	ErrVoid = errors.New("manifest: update is void")
)

// FencedError says by whom a role was taken over. It is [ErrFenced].
type FencedError struct {
	Role        layout.Role
	Mine, Other fence.Epoch
}

func (e *FencedError) Error() string {
	if e.Mine == e.Other {
		return fmt.Sprintf("manifest: fenced: another %s uses the token of epoch %d too", e.Role, e.Mine)
	}
	return fmt.Sprintf("manifest: fenced: the %s of epoch %d has been replaced by that of epoch %d", e.Role, e.Mine, e.Other)
}

// Is makes a FencedError an [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }
