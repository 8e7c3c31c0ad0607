package outside

import (
	"context"
	"errors"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// followLock watches a place that has a lock and no log, until something else is there. A tick reads the
// newest lock. Each eighth lists the locks too, and looks what is there.
func (h *Hub) followLock(ctx context.Context, i int, st store.Store) error {
	f := h.follower(st)
	other := func() (bool, error) {
		kind, _, err := h.kind(ctx, st)
		return errors.Is(err, manifest.ErrNotInitialized) || err == nil && kind != "lock", err
	}
	return h.repeat(ctx, i, other, func(n int) error {
		if err := f.findLeader(ctx, n%8 == 0); err != nil {
			return err
		}
		h.update(i, func(s *State) { s.Lock = f.lock() })
		if err := f.history(ctx); err != nil {
			return err
		}
		f.complete = true
		h.update(i, func(s *State) { s.Lock, s.Err = f.lock(), "" })
		return nil
	})
}

// lock is what a follower knows of a place without a log.
func (f *follower) lock() *Lock {
	return &Lock{Store: f.st.Traits().Name, Complete: f.complete, Terms: f.leaderships()}
}
