package outside

import (
	"cmp"
	"context"
	"errors"

	"github.com/fencepost/fencepost/cmd/fencepost/internal/survey"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// followLock watches a place that has a lock and no log, until something else is there. A tick reads the
// newest lock, and each third looks whether there is a log now. Each ninth lists the locks too, and looks what is there.
func (h *Hub) followLock(ctx context.Context, i int, st store.Store) {
	f := h.follower(st)
	looks := 0
	f.jobs.place = job{every: 3, wait: 3}
	f.jobs.place.do = func(ctx context.Context) error {
		if looks++; looks%3 != 0 {
			if _, err := manifest.ReadFormat(ctx, st, h.settle()); !errors.Is(err, manifest.ErrNotInitialized) {
				return cmp.Or(err, errElsewhere)
			}
			return nil
		}
		kind, _, err := h.kind(ctx, st)
		if errors.Is(err, manifest.ErrNotInitialized) || err == nil && kind != "lock" {
			return errElsewhere
		}
		return err
	}
	f.repeat(ctx, i, []*job{&f.jobs.place, &f.jobs.leader, &f.jobs.past}, func(s *State) { s.Lock = f.lock() })
}

// lock is what a follower knows of a place without a log.
func (f *follower) lock() *Lock {
	return &Lock{Lock: survey.Lock{Kind: "lock", Store: f.st.Traits().Name, Leader: f.lead()}, Complete: f.jobs.leader.done, Terms: f.leaderships()}
}
