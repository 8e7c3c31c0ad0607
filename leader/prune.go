package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// PruneOptions say which old locks [Elector.Prune] keeps: a part of [Options], whose Validate checks them too.
// The zero value works.
type PruneOptions struct {
	// Keep is the largest number of locks to keep; default 1,000.
	Keep int
	// For is how long to keep a lock after its last heartbeat; default 90 days. Age
	// is measured by the store's clock, or by Options.Clock if the store does not
	// tell the time.
	For time.Duration
}

// validate returns all faults, each an [ErrOptions].
func (o *PruneOptions) validate() error {
	var bad []error
	if o.Keep < 0 {
		bad = append(bad, fmt.Errorf("%w: Keep %d of old locks must not be negative", ErrOptions, o.Keep))
	}
	if o.For < 0 {
		bad = append(bad, fmt.Errorf("%w: For %v of old locks must not be negative", ErrOptions, o.For))
	}
	return errors.Join(bad...)
}

func (o PruneOptions) withDefaults() PruneOptions {
	o.Keep = cmp.Or(o.Keep, 1000)
	o.For = cmp.Or(o.For, 90*24*time.Hour)
	return o
}

// Prune deletes old locks and returns how many. A lock is kept if it is among the
// newest Options.Prune.Keep and younger than Options.Prune.For. The newest lock is
// always kept, and so is every object whose name is not that of a lock.
//
// A leader prunes in the background unless Options.NoPrune is set. Prune is for
// everybody else, at any time: epochs below the newest are never used again.
// Errors are the store's and ctx's; some locks may be deleted already.
func (e *Elector) Prune(ctx context.Context) (int, error) {
	opts := e.settle(0)
	opts.Attempt = 0              // one request may delete a thousand locks
	old := map[fence.Epoch]bool{} // by epoch, since a listing may show a lock twice
	err := e.each(ctx, 0, opts, func(epoch fence.Epoch, info store.Info) {
		age, known := info.Age()
		if !known && !info.LastModified.IsZero() {
			age = e.clock.Wall().Sub(info.LastModified)
		}
		old[epoch] = age >= e.opts.Prune.For
	})
	if err != nil {
		// An incomplete listing may lack the newest lock: delete nothing.
		return 0, err
	}
	var doomed []string
	for i, epoch := range slices.Backward(slices.Sorted(maps.Keys(old))) {
		rank := len(old) - 1 - i // 0 is the newest
		// guard:keep-newest. The newest lock is never deleted, whatever its age.
		//
		//mutant:replace rank > 0 && =>
		if rank > 0 && (rank >= e.opts.Prune.Keep || old[epoch]) {
			doomed = append(doomed, layout.LockKey(e.prefix, epoch))
		}
	}
	if err := store.DeleteAll(ctx, e.st, doomed, opts); err != nil {
		return 0, err
	}
	return len(doomed), nil
}
