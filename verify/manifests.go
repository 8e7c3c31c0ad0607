package verify

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store"
)

// manifests checks that the versions above the prune mark are all there and readable.
func (v *verifier) manifests(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		return err
	}
	mark, upTo := v.m.PruneMark, v.m.Version
	kept, err := v.log.Versions(ctx)
	if err != nil {
		return err
	}
	var there []uint64
	for n := range kept {
		if n > mark && n <= upTo {
			there = append(there, n)
		}
	}
	slices.Sort(there)
	errs, err := each(ctx, len(there), func(ctx context.Context, i int) error {
		_, _, err := v.log.At(ctx, there[i])
		return err
	}, func(int) {})
	if err != nil {
		return err
	}
	// What was not found may have been pruned meanwhile.
	if err := v.refresh(ctx); err != nil {
		return err
	}
	last, seen := max(mark, v.m.PruneMark), false
	for i, n := range there {
		if n <= last || errors.Is(errs[i], state.ErrPruned) {
			continue
		}
		if errs[i] != nil {
			v.problem(layout.ManifestKey(n), restore, "%s; readers and writers do without it, but a compactor may not prune beyond it", about(layout.ManifestKey(n), errs[i]))
		}
		if seen {
			v.gap(last+1, n)
		} else {
			v.first = span{last + 1, n}
		}
		last, seen = n, true
	}
	v.gap(last+1, upTo+1)
	return nil
}

// span is the versions from one up to another.
type span struct{ from, to uint64 }

// older judges versions that are missing before the oldest one that is there. A copy has one version, and
// so has a log that was restored from one: no prune mark has passed the others.
func (v *verifier) older() {
	switch gap := v.first; {
	case v.opts.Copy || gap.from >= gap.to:
	case gap.to <= v.log.Format().Restored:
		v.note(layout.ManifestKey(gap.from), "nothing: a compactor or a leader raises the prune mark",
			"%d versions from this one on are missing, because the log was restored from a backup, which has one version", gap.to-gap.from)
	default:
		v.gap(gap.from, gap.to)
	}
}

// replaced checks what the newest manifest has dropped and older versions still name that are
// promised: a reader may have them, and a backup may pin them. Each such object was named by
// the version before the one that dropped it.
func (v *verifier) replaced(ctx context.Context) error {
	m := v.m
	by := map[uint64]map[string]bool{} // by the last version that named them
	for d, err := range v.log.Dropped(ctx, m) {
		if err != nil && unreadable(err) {
			return nil // a page, which pages reports
		}
		if err != nil {
			return err
		}
		if last := d.Version - 1; last > m.PruneMark {
			if by[last] == nil {
				by[last] = map[string]bool{}
			}
			by[last][d.Key] = true
		}
	}
	for _, last := range slices.Sorted(maps.Keys(by)) {
		old, _, err := v.log.At(ctx, last)
		if err != nil && unreadable(err) {
			continue // manifests reports it, unless it was pruned meanwhile
		}
		if err != nil {
			return err
		}
		err = v.named(ctx, old, func(key string) bool { return by[last][key] }, func(key string, bad error) error {
			// The manifest is read after the object: it may have been pruned.
			if err := v.refresh(ctx); err != nil || v.m.PruneMark >= last {
				return err
			}
			if errors.Is(bad, store.ErrNotFound) {
				bad = errMissing
			}
			v.problem(key, restore, "%s; version %d refers to it, which is still promised to readers and backups", about(key, bad), last)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// gap reports the versions from one up to another, which are missing.
func (v *verifier) gap(from, to uint64) {
	if from < to {
		v.problem(layout.ManifestKey(from), restore, "%d versions from this one on are missing, although the prune mark is %d: somebody else deletes here", to-from, v.m.PruneMark)
	}
}

// consumers checks that the positions of consumers can be read.
func (v *verifier) consumers(ctx context.Context) error {
	for info, err := range store.ListAll(ctx, v.st, layout.ConsumerPrefix, nil, v.opts.Settle) {
		if err != nil {
			return err
		}
		if layout.KindOf(info.Key) != layout.KindConsumer {
			continue // noted with the objects of unknown names
		}
		_, err := register.Read(ctx, v.st, info.Key, &register.Options{Settle: v.opts.Settle})
		switch {
		case err == nil, errors.Is(err, store.ErrNotFound):
		case errors.Is(err, fence.ErrCorrupt), errors.Is(err, fence.ErrFormat):
			v.problem(info.Key, "delete it, and tell the consumer where to begin", "the position of a consumer cannot be read: %s", about(info.Key, err))
		default:
			return err
		}
	}
	return nil
}

// locks checks that the locks of both elections can be read.
func (v *verifier) locks(ctx context.Context) error {
	for _, prefix := range []string{layout.KindLock, layout.KindCompactorLock} {
		e, err := leader.New(v.st, prefix, &leader.Options{Clock: v.opts.Clock})
		if err != nil {
			return err
		}
		newest := true
		for rec, err := range e.History(ctx) {
			switch {
			case err == nil:
				v.report.Locks++
			case !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat):
				return err
			case newest:
				v.problem(rec.Key, "", "%v", err)
			default:
				v.repairable(ctx, rec.Key, repair{"delete it, since only the history of leaders needs it", func(ctx context.Context) error { return v.unlock(ctx, rec.Key) }},
					"an old lock cannot be read: %s", about(rec.Key, err))
			}
			if newest {
				v.lockLost(prefix, max(rec.Epoch, rec.Next))
			}
			newest = false
		}
	}
	return nil
}

// lockLost notes that the newest lock of an election is older than an epoch that has written.
func (v *verifier) lockLost(prefix string, newest fence.Epoch) {
	role := layout.Writer
	if prefix == layout.KindCompactorLock {
		role = layout.Compactor
	}
	if v.m == nil || v.m.Roles[role].Epoch <= newest {
		return
	}
	v.note(prefix+"/", "nothing, if the epochs come from elsewhere now; otherwise look for what deletes locks. The next leader skips the epochs that were used",
		"the newest lock is of epoch %d, and epoch %d has written", newest, v.m.Roles[role].Epoch)
}
