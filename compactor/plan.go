package compactor

import (
	"context"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Plan is what a compactor that begins now would do.
type Plan struct {
	// Version is that of the manifest that the plan was made from.
	Version uint64 `json:"version"`
	// Floor is the first slot of the chain that is not folded. FloorOffset is the number
	// of records before it.
	Floor       fence.Position `json:"floor"`
	FloorOffset uint64         `json:"floor_offset"`
	// FoldObjects is how many objects are at the floor or after it, FoldBytes their size:
	// so many are folded at most. Void objects are among them.
	FoldObjects int   `json:"fold_objects"`
	FoldBytes   int64 `json:"fold_bytes"`
	// Merges are those of the present segments, in order. The fold may lead to more.
	Merges []Merge `json:"merges"`
	// Start is the offset before which records were given up already, Truncate the one
	// before which [Retain] would give them up.
	Start    uint64 `json:"start"`
	Truncate uint64 `json:"truncate"`
	// Deletes are what pruning would delete now. What this fold, these merges and this
	// truncation make unnecessary is not among it: it goes after the grace period.
	Deletes []Deletion `json:"deletes"`
	// Pins are those that hold a version. Some may have lapsed: only a compactor that has
	// watched them knows.
	Pins []manifest.Pin `json:"-"`
}

// Merge replaces some segments by one.
type Merge struct {
	// Segments are the keys of those that are replaced.
	Segments []string `json:"segments"`
	// First and End are the offsets of the first record and after the last one.
	First uint64 `json:"first"`
	End   uint64 `json:"end"`
	// Bytes is about the size of the result.
	Bytes int64 `json:"bytes"`
}

// Deletion is what one rule deletes.
type Deletion struct {
	// Kind is as in [Report.Pruned].
	Kind string `json:"kind"`
	// Count is how many objects are deleted, Bytes their size.
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
	// Examples are the first keys, at most 8.
	Examples []string `json:"examples"`
}

// Plan returns what a compactor would do, and changes nothing. It needs no token and no
// permission to write: it lists the whole log, and reads a little. Errors: as of
// [Compactor.Once], except ErrFenced and those of the election.
func (c *Compactor) Plan(ctx context.Context) (*Plan, error) {
	plan, err := c.plan(ctx)
	return plan, failed(ctx, err)
}

func (c *Compactor) plan(ctx context.Context) (*Plan, error) {
	log, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	m, err := log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	// As the next compactor, which has fenced all before it.
	e, err := newEpoch(log, fence.NewToken(m.Roles[layout.Compactor].Epoch+1))
	if err != nil {
		return nil, err
	}
	p := c.pass(e)
	if err := p.checkFiles(ctx); err != nil {
		return nil, err
	}
	s, err := p.survey(ctx, false)
	if err != nil {
		return nil, err
	}
	s.epoch = p.token.Epoch()
	plan := &Plan{
		Version: s.m.Version, Floor: s.m.Floor.Position, FloorOffset: s.m.Floor.Offset,
		Merges: p.planMerges(s.m), Start: s.m.Start, Pins: s.pins.All,
	}
	if plan.Truncate, err = p.keepsFrom(ctx, s); err != nil {
		return nil, err
	}
	unfolded := rule{p.st, "", layout.DataPrefix, func(_ context.Context, info store.Info) (bool, error) {
		pos, ok := layout.ParseDataKey(info.Key)
		return ok && !pos.Before(s.m.Floor.Position), nil
	}}
	err = p.each(ctx, unfolded, func(info store.Info) bool {
		plan.FoldObjects++
		plan.FoldBytes += info.Size
		return true
	})
	if err != nil {
		return nil, err
	}
	return plan, p.planDeletes(ctx, s, plan)
}

// planMerges plays all merges of the present segments.
func (p *pass) planMerges(m *state.Manifest) []Merge {
	var all []Merge
	segs := slices.Clone(mergeable(m))
	for old := p.opts.levels().plan(segs); old != nil; old = p.opts.levels().plan(segs) {
		sum := merged(old)
		merge := Merge{First: sum.First, End: sum.End, Bytes: sum.Size}
		for _, s := range old {
			merge.Segments = append(merge.Segments, s.Key)
		}
		all = append(all, merge)
		i := slices.Index(segs, old[0])
		segs = slices.Replace(segs, i, i+len(old), sum)
	}
	return all
}

func (p *pass) planDeletes(ctx context.Context, s *survey, plan *Plan) error {
	var rules []rule
	dropped, err := p.anyDropped(ctx, s)
	if err != nil {
		return err
	}
	if s.horizon != nil {
		rules = append(rules, p.dataRule(s), rule{p.st, "manifest", layout.ManifestPrefix, func(_ context.Context, info store.Info) (bool, error) {
			v, ok := layout.ParseManifestKey(info.Key)
			return ok && s.pins.Frees(v, s.mark), nil
		}})
	}
	if dropped {
		rules = append(rules, p.droppedRules(s)...)
	}
	rules = append(rules, p.orphanRules(s)...)
	for _, r := range append(rules, p.tmpRules()...) {
		err := p.each(ctx, r, func(info store.Info) bool {
			plan.add(r.kind, info)
			return true
		})
		if err != nil {
			return err
		}
	}
	for _, r := range p.uploadRules(s) {
		st, ok := store.As[store.UploadAborter](r.in)
		if !ok {
			continue
		}
		_, err := st.AbortUploads(ctx, r.prefix, func(info store.Info) bool {
			if dead, err := r.dead(ctx, info); dead && err == nil {
				plan.add(r.kind, info)
			}
			return false
		})
		if err != nil && !store.Permanent(err) {
			return err
		}
	}
	locks := &wouldDelete{Store: p.plain}
	if err := p.pruneLocks(ctx, locks, func(int) {}); err != nil {
		return err
	}
	for _, key := range locks.keys {
		plan.add("lock", store.Info{Key: key})
	}
	return nil
}

// droppedRules find dropped objects in listings, which tell their sizes. Pruning deletes
// them by name.
func (p *pass) droppedRules(s *survey) []rule {
	upTo := s.pins.UpTo(s.mark)
	names := lazy(func(ctx context.Context, set *keySet) error {
		for d, err := range p.log.Dropped(ctx, s.m) {
			if err != nil {
				return err
			}
			if d.Version > upTo {
				break
			}
			set.add(d.Key)
		}
		return nil
	})
	named := func(in store.Store, kind, prefix string) rule {
		return rule{in, kind, prefix, func(ctx context.Context, info store.Info) (bool, error) {
			if layout.KindOf(info.Key) != kind {
				return false, nil
			}
			not, err := absent(ctx, names, info.Key)
			return !not, err
		}}
	}
	return []rule{
		named(p.st, layout.KindSegment, layout.SegmentPrefix), named(p.st, layout.KindList, layout.ListPrefix),
		named(p.files, layout.KindFile, layout.FilePrefix),
	}
}

// wouldDelete is a store that deletes nothing, and remembers what it was asked to delete.
type wouldDelete struct {
	store.Store
	keys []string
}

func (w *wouldDelete) Delete(_ context.Context, keys ...string) error {
	w.keys = append(w.keys, keys...)
	return nil
}

func (p *Plan) add(kind string, info store.Info) {
	i := slices.IndexFunc(p.Deletes, func(d Deletion) bool { return d.Kind == kind })
	if i < 0 {
		i = len(p.Deletes)
		p.Deletes = append(p.Deletes, Deletion{Kind: kind})
	}
	d := &p.Deletes[i]
	d.Count++
	d.Bytes += info.Size
	if len(d.Examples) < examples {
		d.Examples = append(d.Examples, info.Key)
	}
}
