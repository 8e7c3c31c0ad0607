package outside

import (
	"context"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/store"
)

// followLock watches a place that has a lock and no log, until an error, or until something else is
// there. A tick reads the newest lock. Each eighth lists the locks too, and looks what is there.
func (h *Hub) followLock(ctx context.Context, i int, st store.Store) error {
	f := h.follower(st)
	for n := 0; ; n++ {
		if n%8 == 7 {
			if kind, _, err := h.kind(ctx, st); err != nil || kind != "lock" {
				return err
			}
		}
		if n%8 == 0 || f.newest == 0 || !f.lead().Leads() {
			if err := f.listLocks(ctx); err != nil {
				return err
			}
		}
		if err := f.readLock(ctx); err != nil {
			return err
		}
		h.update(i, func(s *State) { s.Lock = f.lock() })
		if err := f.history(ctx); err != nil {
			return err
		}
		f.complete = true
		h.update(i, func(s *State) { s.Lock, s.Err = f.lock(), "" })
		if h.once {
			return nil
		}
		if err := clock.Sleep(ctx, h.clock, h.tick); err != nil {
			return err
		}
	}
}

// lock is what a follower knows of a place without a log.
func (f *follower) lock() *Lock {
	return &Lock{Store: f.st.Traits().Name, Complete: f.complete, Terms: f.leaderships()}
}
