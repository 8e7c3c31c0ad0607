package leader

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// History yields the locks that pruning has kept, newest first: who led, since
// when, and how each term ended. Stop the loop when you have seen enough: it reads
// 16 locks at a time. Before the first it lists all of them, which takes some 16
// bytes of memory each.
//
// It leaves out locks below the newest that are not expired. Nobody led with such
// a lock: late requests leave them in the holes of pruned locks.
//
// A corrupt lock comes as an error, with its epoch and key in the record, and the
// loop goes on. After any other error it ends.
func (e *Elector) History(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		opts := e.settle(0)
		listed := map[fence.Epoch]bool{} // a listing may show a lock twice
		if err := e.each(ctx, 0, opts, func(epoch fence.Epoch, _ store.Info) { listed[epoch] = true }); err != nil {
			yield(Record{}, err)
			return
		}
		epochs := slices.Sorted(maps.Keys(listed))
		slices.Reverse(epochs)
		for batch := range slices.Chunk(epochs, 16) {
			records, errs := make([]Record, len(batch)), make([]error, len(batch))
			var wg sync.WaitGroup
			for i, epoch := range batch {
				wg.Go(func() {
					records[i], _, errs[i] = e.read(ctx, epoch, "", opts)
					records[i].Epoch, records[i].Key = epoch, layout.LockKey(e.prefix, epoch)
				})
			}
			wg.Wait()
			for i, rec := range records {
				err := errs[i]
				switch {
				case errors.Is(err, store.ErrNotFound):
					continue // pruned meanwhile
				case errors.Is(err, ErrCorrupt), errors.Is(err, ErrFormat):
				case err != nil:
					yield(Record{}, err)
					return
				case rec.State != Expired && batch[i] != epochs[0]:
					continue
				}
				if !yield(rec, err) {
					return
				}
			}
		}
	}
}
