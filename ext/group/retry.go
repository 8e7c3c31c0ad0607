package group

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Retry lets partitions run again that their owners gave up: see Status.GivenUp. Call it when the cause is
// mended. A partition that nobody owns, because its work hung with three owners, gets one. Of the others it is
// forgotten who gave them up, so they may go to other members. A nil list means all that are given up.
//
// Retry returns the partitions of the list that were given up, when the store has the call. [Observe] shows what
// comes of it. Errors: [ErrOptions] if the group has no such partition; [ErrNoGroup]; errors of the store.
func Retry(ctx context.Context, st store.Store, partitions []int, opts *Options) ([]int, error) {
	if err := given(st, opts); err != nil {
		return nil, err
	}
	v := &observer{st: st, clock: clock.System(), docs: map[string]seenDoc{}}
	if opts != nil {
		v.clock = clock.Or(opts.Clock)
	}
	v.settle = &store.SettleOptions{Clock: v.clock}
	s, _, err := v.look(ctx)
	if err != nil {
		return nil, err
	}
	if partitions == nil {
		partitions = s.GivenUp
	}
	for _, p := range partitions {
		if p < 0 || p >= s.Partitions {
			return nil, fmt.Errorf("%w: partition %d: the group has 0 to %d", ErrOptions, p, s.Partitions-1)
		}
	}
	key, doc := member.Again(v.calls(), slices.Compact(slices.Sorted(slices.Values(partitions))), fence.ID(uuid.New()), newNonce())
	if len(doc.Given) == 0 {
		return nil, nil
	}
	body, err := encode(key, doc)
	if err != nil {
		return nil, err
	}
	if _, err := store.Create(ctx, st, key, body, &store.WriteOptions{Settle: v.settle}); err != nil {
		return nil, err
	}
	var again []int
	for _, g := range doc.Given {
		again = append(again, g.Partition)
	}
	return again, nil
}
