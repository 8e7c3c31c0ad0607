package leader

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// PruneOptions say how much history to keep. The zero value works.
type PruneOptions struct {
	// Keep is how many locks to keep at most; default 1,000.
	Keep int
	// For is how long to keep locks, from their last heartbeat; default 90 days.
	// It goes by the store's clock where the store tells it, else by this
	// machine's.
	For time.Duration
	// Clock is the machine's by default.
	Clock clock.Clock
	// Settle tunes retries. Its Clock is that above by default.
	Settle *store.SettleOptions
}

// Validate returns an error that is [ErrOptions] if Keep or For is negative.
func (o PruneOptions) Validate() error {
	if o.Keep < 0 || o.For < 0 {
		return fmt.Errorf("%w: of old locks, Keep is %d and For is %v; neither may be negative", ErrOptions, o.Keep, o.For)
	}
	return nil
}

func (o PruneOptions) withDefaults() PruneOptions {
	if o.Keep == 0 {
		o.Keep = 1000
	}
	if o.For == 0 {
		o.For = 90 * 24 * time.Hour
	}
	o.Clock = clock.Or(o.Clock)
	return o
}

// Prune deletes old locks of the election under prefix and returns how many. It
// keeps the newest lock, whatever the options and the clocks say; of the others
// those that are both among the newest Keep and younger than For; and every
// object whose name it does not understand. Anybody may call it at any time:
// numbers below the newest are never used again. Errors: [ErrOptions],
// store.ErrInvalid for the prefix, the store's or ctx's.
func Prune(ctx context.Context, st store.Store, prefix string, opts *PruneOptions) (int, error) {
	prefix = strings.TrimSuffix(prefix, "/") + "/"
	if err := store.CheckPrefix("prune", prefix); err != nil {
		return 0, err
	}
	var o PruneOptions
	if opts != nil {
		o = *opts
	}
	if err := o.Validate(); err != nil {
		return 0, err
	}
	o = o.withDefaults()
	return prune(ctx, &files{st: st, prefix: prefix, clock: o.Clock}, &o)
}

// pruneBatch bounds one request to delete; it is S3's limit.
const pruneBatch = 1000

func prune(ctx context.Context, f *files, o *PruneOptions) (int, error) {
	opts := &store.SettleOptions{Random: f.jitter}
	if o.Settle != nil {
		*opts = *o.Settle
	}
	if opts.Clock == nil {
		opts.Clock = f.clock
	}
	old := map[uint64]bool{} // by epoch; a map, since a listing may tell a lock twice
	err := f.each(ctx, 0, opts, func(epoch uint64, info store.Info) {
		age, known := info.Age()
		if !known && !info.LastModified.IsZero() {
			age, known = f.clock.Wall().Sub(info.LastModified), true
		}
		old[epoch] = known && age >= o.For
	})
	if err != nil {
		// An incomplete listing may lack the newest: nothing is deleted on it.
		return 0, err
	}
	var doomed []string
	for i, epoch := range slices.Backward(slices.Sorted(maps.Keys(old))) {
		rank := len(old) - 1 - i // 0 is the newest
		// guard:keep-newest. Epochs go on from it.
		//
		//mutant:replace rank > 0 && =>
		if rank > 0 && (rank >= o.Keep || old[epoch]) {
			doomed = append(doomed, lockKey(f.prefix, epoch))
		}
	}
	deleted := 0
	for batch := range slices.Chunk(doomed, pruneBatch) {
		if err := store.DeleteAll(ctx, f.st, batch, opts); err != nil {
			return deleted, err
		}
		deleted += len(batch)
	}
	return deleted, nil
}
