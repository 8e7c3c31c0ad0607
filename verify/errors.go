package verify

import (
	"errors"
	"fmt"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/chain"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// ErrOptions: an option is invalid. The text shows each fault.
var ErrOptions = errors.New("verify: invalid options")

var (
	// errMoved: the newest manifest no longer needs what was being read.
	errMoved = chain.ErrMoved
	// errMissing: an object that a version names is not there.
	errMissing = errors.New("it is missing")
	// errNoFile: a file of the table is not there.
	errNoFile = fmt.Errorf("%w: the file is missing", fence.ErrCorrupt)
	// errNoManifest: the newest manifest is damaged, which is in the report.
	errNoManifest = errors.New("verify: the newest manifest is damaged")
)

// unreadable tells errors of an object from those of the store.
func unreadable(err error) bool {
	kinds := []error{fence.ErrCorrupt, fence.ErrLimit, state.ErrPruned, store.ErrNotFound, store.ErrTooLarge, store.ErrRange}
	return slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) })
}
