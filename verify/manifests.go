package verify

import (
	"context"
	"errors"
	"slices"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
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
		if !v.opts.Copy || seen {
			v.gap(last+1, n)
		}
		last, seen = n, true
	}
	v.gap(last+1, upTo+1)
	return nil
}

// gap reports the versions from one up to another, which are missing.
func (v *verifier) gap(from, to uint64) {
	if from < to {
		v.problem(layout.ManifestKey(from), restore, "%d versions from this one on are missing, although the prune mark is %d: somebody else deletes here", to-from, v.m.PruneMark)
	}
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
			case !errors.Is(err, leader.ErrCorrupt) && !errors.Is(err, leader.ErrFormat):
				return err
			case newest:
				v.problem(rec.Key, "", "%v", err)
			default:
				v.note(rec.Key, "only the history of leaders needs it; it may be deleted", "an old lock cannot be read: %v", err)
			}
			newest = false
		}
	}
	return nil
}
