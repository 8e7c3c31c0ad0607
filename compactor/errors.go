package compactor

import (
	"errors"

	"github.com/fencepost/fencepost/fence"
)

var (
	// ErrOptions: no compactor can work with these [Options]. The error names every
	// fault.
	ErrOptions = errors.New("compactor: invalid options")
	// ErrFenced: a compactor of a later epoch has taken over. It is final for the token.
	// It is [fence.ErrFenced]; [fence.FencedError] says which epoch it was.
	ErrFenced = fence.ErrFenced
)
