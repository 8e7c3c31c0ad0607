package fencepost_test

import (
	"context"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/writer"
)

// The compactor prunes old locks: its options say how many to keep, and its credentials
// may delete them. A leader prunes them only if its own options say how many to keep.
func TestRunLeavesOldLocks(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		run := func(lo *leader.Options, work time.Duration) (locks int) {
			t.Helper()
			lo.Clock = clock.Go()
			err := fencepost.Run(t.Context(), w.Mem, &fencepost.Options{Leader: lo, Writer: &writer.Options{Clock: clock.Go()}}, func(ctx context.Context, _ *fencepost.Session) error {
				return clock.Sleep(ctx, clock.Go(), work)
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range w.Mem.List(t.Context(), fencepost.LockPrefix, nil) {
				if err != nil {
					t.Fatal(err)
				}
				locks++
			}
			return locks
		}
		run(&leader.Options{}, 0)
		run(&leader.Options{}, 0)
		time.Sleep(100 * 24 * time.Hour) // longer than a leader's default
		if n := run(&leader.Options{}, time.Minute); n != 3 {
			t.Errorf("%d locks are left of 3", n)
		}
		if n := run(&leader.Options{Prune: leader.PruneOptions{Keep: 2}}, time.Minute); n != 2 {
			t.Errorf("%d locks are left; 2 were to be kept", n)
		}
		if n := run(&leader.Options{NoPrune: true, Prune: leader.PruneOptions{Keep: 1}}, time.Minute); n != 3 {
			t.Errorf("%d locks are left; none was to be deleted", n)
		}
	})
}
