package compactor

import (
	"github.com/fencepost/fencepost/internal/state"
)

// ErrFenced is package manifest's: a later compactor has taken over. It is final
// for the token.
var ErrFenced = state.ErrFenced
