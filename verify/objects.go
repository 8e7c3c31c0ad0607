package verify

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

// objects lists everything, and notes what nobody needs. A listing that breaks off begins
// again, and then objects are counted twice.
func (v *verifier) objects(ctx context.Context, known bool) error {
	var n *names
	if known {
		var err error
		if n, err = v.lists(ctx); err != nil && !errors.Is(err, errNoManifest) {
			return err
		}
	}
	v.report.Objects = map[string]Count{}
	listed := int64(0)
	var unnamed Count
	waste := map[string]Count{}
	for info, err := range store.ListAll(ctx, v.st, "", nil, v.opts.Settle) {
		if err != nil {
			return err
		}
		if listed++; listed%1000 == 0 {
			v.opts.Hooks.Progress(Progress{Stage: "objects", Done: listed})
		}
		kind := layout.KindOf(info.Key)
		v.report.Objects[kind] = v.report.Objects[kind].and(info.Size)
		switch {
		case kind == layout.KindUnknown:
			v.note(info.Key, "", "no log has an object of this name")
		case n == nil:
		case kind == layout.KindSegment || kind == layout.KindList:
			if !n.keys[info.Key] {
				unnamed = unnamed.and(info.Size)
			}
		case kind == layout.KindData:
			v.listedSeal(info)
			why := v.unneeded(n, info)
			waste[why] = waste[why].and(info.Size)
		}
	}
	if n != nil {
		if err := v.unlistedSeals(ctx); err != nil {
			return err
		}
	}
	if v.second() {
		sizes, err := v.fileSizes(ctx)
		if err != nil {
			return err
		}
		for key, size := range sizes {
			kind := layout.KindOf(key)
			v.report.Objects[kind] = v.report.Objects[kind].and(size)
		}
	}
	if c := waste[folded]; c.Objects > 0 {
		v.note("", "a compactor deletes them after the grace period", "folded below data/: %v", c)
	}
	if c := waste[void]; c.Objects > 0 {
		v.note("", "a compactor deletes them when the epoch is folded", "void below data/: %v, which came after the seal of their epoch and were never acknowledged", c)
	}
	// After damage they are what it cuts off, and not what a killed writer has left.
	cut := slices.ContainsFunc(v.report.Problems, func(f Finding) bool { return strings.HasPrefix(f.Key, layout.DataPrefix) })
	if c := waste[beyond]; c.Objects > 0 && !cut {
		v.note(layout.DataKey(v.report.Tail), "nothing, if a writer is at work or was killed: its requests come in any order", "after this slot, where the log ends: %v", c)
	}
	if unnamed.Objects > 0 {
		v.note("", "a compactor of a later epoch deletes them; one that is at work is about to name its own", "segments and lists that no manifest names: %v", unnamed)
	}
	return v.noManifest(ctx, known)
}

// Why an object below data/ is not needed.
const (
	folded = "folded"
	void   = "void"
	beyond = "beyond the tail"
)

// unneeded returns why an object below data/ is not needed; empty if it is.
func (v *verifier) unneeded(n *names, info store.Info) string {
	p, _ := layout.ParseDataKey(info.Key)
	seal, named := n.seals[p.Epoch]
	end, sealed := v.sealed[p.Epoch]
	switch {
	case !v.m.Past(p) && sealed && p.Seq > end:
		return void
	case !v.m.Past(p) && p.Epoch == v.report.Tail.Epoch && p.Seq > v.report.Tail.Seq:
		return beyond
	case !v.m.Past(p), named && p == seal:
		return ""
	case !named && info.Size == frame.HeaderSize && p.Epoch < v.m.Floor.Position.Epoch:
		return "" // a seal of an epoch that wrote nothing
	}
	return folded
}

// noManifest reports segments in a log that has no manifest.
func (v *verifier) noManifest(ctx context.Context, known bool) error {
	segments := v.report.Objects[layout.KindSegment].Objects
	if !known || v.m.Version > 0 || segments == 0 {
		return nil
	}
	// The first one may have come meanwhile.
	if err := v.refresh(ctx); err != nil && !errors.Is(err, errNoManifest) {
		return err
	}
	if v.m.Version == 0 {
		v.problem(layout.ManifestPrefix, restore+"; "+keep, "there are %d segments, and no manifest that names them", segments)
	}
	return nil
}
