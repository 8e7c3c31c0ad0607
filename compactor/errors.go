package compactor

import "github.com/fencepost/fencepost/fence"

// ErrFenced is package fence's: a later compactor has taken over. It is final for
// the token. See [fence.FencedError] for by whom.
var ErrFenced = fence.ErrFenced
