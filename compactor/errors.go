package compactor

import "github.com/fencepost/fencepost/manifest"

// ErrFenced is package manifest's: a later compactor has taken over. It is final
// for the token.
var ErrFenced = manifest.ErrFenced
