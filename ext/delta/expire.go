package delta

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
)

// Expire is [Table.Expire].
func (t *deltaTable) Expire(ctx context.Context, known State) (map[fence.ID]uint64, func(context.Context) error, error) {
	s := known.(*state)
	l := t.listed
	if t.listed = nil; l == nil {
		var err error
		if l, err = t.list(ctx, 0); err != nil {
			return nil, nil, err
		}
	}
	// guard:delta-tidy-newest. The search for the oldest version within the retention begins at the
	// newest version of the same listing, not at one that the publisher knows.
	//
	//mutant:replace first := Oldest(l.commits, l.high, => first := Oldest(l.commits, s.version,
	first := Oldest(l.commits, l.high, s.Meta().Retention)
	manifests, base, err := t.oldest(ctx, s, l, first)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, nil // another publisher is at it
	}
	switch {
	case errors.Is(err, ErrDamaged), errors.Is(err, ErrForeign):
		t.foreign(commitKey(first), fmt.Sprintf("nothing older is deleted, because this version cannot be read: %v", err))
		return nil, nil, context.Cause(ctx)
	case ctx.Err() != nil:
		return nil, nil, context.Cause(ctx)
	case err != nil:
		t.failed(fmt.Errorf("nothing older than version %d is deleted yet: %w", first, err))
		return nil, nil, nil
	}
	s.past.forget(first)
	// guard:delta-clean. Log cleanup deletes only what is before a Delta checkpoint that it has read
	// and found right.
	//
	//mutant:replace l, base) } => l, lastCheckpoint{Version: max(base.Version, first)}) }
	return manifests, func(ctx context.Context) error { return t.clean(ctx, l, base) }, nil
}

// oldest returns the manifest of each log that a version names, and the checkpoint before which nothing is
// needed for it: version 0 if nothing lies before a checkpoint. A publisher that follows the table
// remembers the manifests, and the commits since the checkpoint.
func (t *table) oldest(ctx context.Context, s *state, l *listing, version int64) (map[fence.ID]uint64, lastCheckpoint, error) {
	if manifests, ok := s.past.at(l, version); ok {
		base := lastCheckpoint{}
		var err error
		if l.cleanable(version) {
			base, ok, err = t.known(ctx, l, &s.past, version)
		}
		if ok || err != nil {
			return manifests, base, err
		}
	}
	st, base, err := t.at(ctx, l, version)
	if err != nil {
		return nil, base, err
	}
	return st.manifests(), base, nil
}

// at reads a version, from the newest checkpoint at or before it that its commit proves. It also
// returns a hint that names that checkpoint, with the version 0 if there is none.
func (t *table) at(ctx context.Context, l *listing, version int64) (s *state, base lastCheckpoint, err error) {
	bases := slices.DeleteFunc(slices.Sorted(maps.Keys(l.checkpoints)), func(v int64) bool { return v > version })
	slices.Reverse(bases)
	for _, v := range bases {
		s, err = t.base(ctx, l, v)
		if err == nil {
			base = s.hint(int(l.checkpoints[v].Size))
			err = t.followTo(ctx, s, l, version)
		}
		if err == nil || !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrForeign) {
			return s, base, err
		}
	}
	s = newState()
	return s, lastCheckpoint{}, t.followTo(ctx, s, l, version)
}

// clean deletes commits and checkpoints before a checkpoint, from the oldest one on.
func (t *table) clean(ctx context.Context, l *listing, base lastCheckpoint) error {
	var keys []string
	for v := range l.commits {
		if v < base.Version {
			keys = append(keys, commitKey(v))
		}
	}
	for v := range l.checkpoints {
		if v < base.Version {
			keys = append(keys, checkpointKey(v))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	// guard:delta-hint-first. Log cleanup deletes nothing until _last_checkpoint names the checkpoint
	// that stays, or a newer one.
	//
	//mutant:replace t.point(ctx, base); err != nil || !moved => true, error(nil); err != nil || !moved
	if moved, err := t.point(ctx, base); err != nil || !moved {
		return err // the next cleanup deletes them
	}
	slices.Sort(keys)
	return store.DeleteAll(ctx, t.st, keys, t.settle)
}
