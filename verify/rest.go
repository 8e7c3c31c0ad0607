package verify

import (
	"context"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
)

// manifests checks that the versions that are not given up are all there and
// readable.
func (v *verifier) manifests(ctx context.Context) error {
	if err := v.refresh(ctx); err != nil {
		if errors.Is(err, errNoManifest) {
			return nil
		}
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
	errs := make([]error, len(there))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(atOnce)
	for i, n := range there {
		g.Go(func() error {
			_, _, err := v.log.At(gctx, n)
			if err != nil && !damage(err) && !errors.Is(err, state.ErrGone) {
				return err
			}
			errs[i] = err
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	// What was not found by now may have been given up meanwhile.
	if err := v.refresh(ctx); err != nil {
		if errors.Is(err, errNoManifest) {
			return nil
		}
		return err
	}
	last, seen := max(mark, v.m.PruneMark), false
	for i, n := range there {
		if n <= last || errors.Is(errs[i], state.ErrGone) {
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
		v.problem(layout.ManifestKey(from), restore, "%d versions from this one on are missing, although only those up to %d are given up: somebody else deletes here", to-from, v.m.PruneMark)
	}
}

// locks checks that the locks of both elections can be read.
func (v *verifier) locks(ctx context.Context) error {
	for _, prefix := range []string{KindLock, KindCompactorLock} {
		e, err := leader.New(v.st, prefix, &leader.Options{Clock: v.opts.Clock})
		if err != nil {
			return err
		}
		newest := true
		for rec, err := range e.History(ctx) {
			unreadable := errors.Is(err, leader.ErrCorrupt) || errors.Is(err, leader.ErrFormat)
			switch {
			case err != nil && !unreadable:
				return err
			case err != nil && newest:
				v.problem(rec.Key, "", "%v", err)
			case err != nil:
				v.note(rec.Key, "only the history of leaders needs it; it may be deleted", "an old lock cannot be read: %v", err)
			default:
				v.report.Locks++
			}
			newest = false
		}
	}
	return nil
}

// objects lists everything, and notes what nobody needs.
func (v *verifier) objects(ctx context.Context, known bool) error {
	var named map[string]bool
	var seals map[fence.Epoch]fence.Position
	whole := false
	if known {
		var err error
		if named, seals, whole, err = v.lists(ctx); err != nil {
			return err
		}
	}
	n := int64(0)
	var unnamed, dead, void, beyond Count
	objects, err := Tally(ctx, v.st, v.opts.Settle, func(kind string, info store.Info) {
		if n++; n%1000 == 0 {
			v.opts.Progress(Progress{Stage: "objects", Done: n})
		}
		switch kind {
		case KindUnknown:
			v.note(info.Key, "", "no log has an object of this name")
		case KindSegment, KindList:
			if whole && !named[info.Key] {
				unnamed = unnamed.and(info.Size)
			}
		case KindData:
			if !whole {
				return
			}
			p, _ := layout.ParseDataKey(info.Key)
			seal, folded := seals[p.Epoch]
			end, sealed := v.sealed[p.Epoch]
			switch {
			case !v.m.Past(p) && sealed && p.Seq > end:
				void = void.and(info.Size)
			case !v.m.Past(p) && p.Epoch == v.report.Tail.Epoch && p.Seq > v.report.Tail.Seq:
				beyond = beyond.and(info.Size)
			case !v.m.Past(p):
			case folded && p == seal:
			case !folded && info.Size == frame.HeaderSize && p.Epoch < v.m.Floor.Position.Epoch:
			default:
				dead = dead.and(info.Size)
			}
		}
	})
	if err != nil {
		return err
	}
	v.report.Objects = objects
	if known && v.m.Version == 0 && objects[KindSegment].Objects > 0 {
		if err := v.refresh(ctx); err != nil && !errors.Is(err, errNoManifest) {
			return err
		}
		if v.m.Version == 0 {
			v.problem(layout.ManifestPrefix, restore+"; "+keep, "there are %d segments, and no manifest that names them", objects[KindSegment].Objects)
		}
	}
	if dead.Objects > 0 {
		v.note("", "a compactor deletes them after the grace period", "%d objects of %d bytes below data/ are folded", dead.Objects, dead.Bytes)
	}
	if void.Objects > 0 {
		v.note("", "a compactor deletes them when the epoch is folded", "%d objects of %d bytes below data/ are void: they came after the seal of their epoch and were never acknowledged", void.Objects, void.Bytes)
	}
	// Behind damage they are what it cuts off, no remains of a killed writer.
	cut := slices.ContainsFunc(v.report.Problems, func(f Finding) bool { return strings.HasPrefix(f.Key, layout.DataPrefix) })
	if beyond.Objects > 0 && !cut {
		v.note(layout.DataKey(v.report.Tail), "nothing, if a writer was at work or was killed; its requests come in any order", "%d objects of %d bytes lie behind this slot, where the log ends", beyond.Objects, beyond.Bytes)
	}
	if unnamed.Objects > 0 {
		v.note("", "a compactor of a later epoch deletes them; one that is at work is about to name its own", "%d segments and lists of %d bytes are named by no manifest", unnamed.Objects, unnamed.Bytes)
	}
	return nil
}
