package leader

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// History yields who led, newest first: the lock files that pruning has kept,
// back to the last heartbeat at or after since, and at most Options.Prune.Keep.
// A zero since means as far back as Options.Prune.For. Times are the store's,
// or the holders' if it tells none: for people.
//
// Left out are locks below the newest that are not expired: nobody led with
// them, since a lock is expired before a later one is created. They are what
// late requests leave behind in pruned holes. An unreadable lock is yielded as
// an error together with its epoch, and the sequence goes on; it ends after any
// other error.
func (e *Elector) History(ctx context.Context, since time.Time) iter.Seq2[Record, error] {
	if since.IsZero() {
		since = e.clock.Wall().Add(-e.opts.Prune.For)
	}
	opts := &store.SettleOptions{Attempt: e.timeout, Clock: e.clock}
	return func(yield func(Record, error) bool) {
		locks, err := e.newestLocks(ctx, e.opts.Prune.Keep, opts)
		if err != nil {
			yield(Record{}, err)
			return
		}
		for batch := range slices.Chunk(locks, 16) {
			records, errs := e.readAll(ctx, batch, opts)
			for i, rec := range records {
				err := errs[i]
				last := cmp.Or(batch[i].modified, rec.Renewed.UnixNano())
				switch {
				case errors.Is(err, store.ErrNotFound):
					continue // pruned meanwhile
				case errors.Is(err, ErrJunk), errors.Is(err, ErrFormat):
				case err != nil:
					yield(Record{}, err)
					return
				case last < since.UnixNano():
					return
				case rec.State != Expired && batch[i].epoch != locks[0].epoch:
					continue
				}
				if !yield(rec, err) {
					return
				}
			}
		}
	}
}

type listedLock struct {
	epoch    uint64
	modified int64 // nanoseconds, 0 if the store does not say
}

// newestLocks lists the newest locks, highest first, in memory that does not
// grow with the number of all.
func (e *Elector) newestLocks(ctx context.Context, keep int, opts *store.SettleOptions) ([]listedLock, error) {
	var locks []listedLock
	cut := func() {
		slices.SortFunc(locks, func(a, b listedLock) int { return cmp.Compare(b.epoch, a.epoch) })
		locks = slices.CompactFunc(locks, func(a, b listedLock) bool { return a.epoch == b.epoch })
		locks = locks[:min(len(locks), keep)]
	}
	err := e.each(ctx, 0, opts, func(epoch uint64, info store.Info) {
		l := listedLock{epoch: epoch}
		if !info.LastModified.IsZero() {
			l.modified = info.LastModified.UnixNano()
		}
		if locks = append(locks, l); len(locks) >= 2*keep+1024 {
			cut()
		}
	})
	cut()
	return locks, err
}

// readAll reads a batch at once.
func (e *Elector) readAll(ctx context.Context, batch []listedLock, opts *store.SettleOptions) ([]Record, []error) {
	records, errs := make([]Record, len(batch)), make([]error, len(batch))
	var wg sync.WaitGroup
	for i, l := range batch {
		wg.Go(func() {
			records[i], _, errs[i] = e.read(ctx, l.epoch, "", opts)
			records[i].Epoch, records[i].Key = fence.Epoch(l.epoch), lockKey(e.prefix, l.epoch)
		})
	}
	wg.Wait()
	return records, errs
}
