package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/internal/member"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Drain makes another member leave in good order, as [Group.Leave] does there: its partitions go to
// others, the work on each goes on until the new owner is ready, and its [Group.Run]
// returns nil. A worker that joins again is a new member, and receives partitions.
//
// Drain returns when the store has the call; [Observe] shows what comes of it. The member hears of it from
// the next assignment. To drain a member twice does no harm. Errors: [ErrNoMember] if there is no
// member of that name, or its session is over; [ErrNoGroup]; errors of the store.
func Drain(ctx context.Context, st store.Store, name string, opts *Options) error {
	if err := given(st, opts); err != nil {
		return err
	}
	settle := &store.SettleOptions{Clock: clock.System()}
	if opts != nil {
		settle.Clock = clock.Or(opts.Clock)
	}
	var id fence.ID
	if err := id.UnmarshalText([]byte(name)); err != nil || id.String() != name {
		return fmt.Errorf("%w: %q is no name of a member; one has 32 hexadecimal digits, see Status.Members", ErrNoMember, name)
	}
	if _, _, err := readFormat(ctx, st, settle); err != nil {
		return err
	}
	key := member.Key(id)
	body, _, err := store.Read(ctx, st, key, &store.ReadOptions{Limit: maxSmall, Settle: settle})
	if errors.Is(err, store.ErrNotFound) {
		return fmt.Errorf("%w: there is no %s", ErrNoMember, key)
	}
	if err != nil {
		return err
	}
	rec, err := decodeRecord(key, body)
	if err != nil {
		return err
	}
	if rec.Expired {
		return fmt.Errorf("%w: the session %s of %s is over", ErrNoMember, name, rec.Identity)
	}
	key, doc := member.Leaving(id, newNonce())
	body, err = encode(key, doc)
	if err != nil {
		return err
	}
	_, err = store.Create(ctx, st, key, body, &store.WriteOptions{Settle: settle})
	if errors.Is(err, store.ErrPrecondition) {
		return nil // it leaves already
	}
	return err
}
