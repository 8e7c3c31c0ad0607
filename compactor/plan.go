package compactor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/store"
)

// Plan is what a compactor that begins now would do.
type Plan struct {
	// Version is that of the manifest that the plan was made from.
	Version uint64
	// Floor is where the unfolded chain begins, and Fold how many objects are at or
	// behind it, and their bytes: as many as can be folded, with void ones.
	Floor frame.Point
	Fold  Objects
	// Merges of the segments that there are, one after the other; the fold may
	// bring about more.
	Merges []Merge
	// Start is the offset before which records have been given up, and Truncate the
	// one before which they would be.
	Start, Truncate uint64
	// Deletes are what the rules of pruning would delete now. What this fold, these
	// merges and this truncation make unnecessary is not among it: it is deleted after
	// the grace period.
	Deletes []Deletion
	// Pins that hold versions. Some may have lapsed: only a compactor that has
	// watched them can tell.
	Pins []state.PinInfo
}

// Objects are a number of them and their bytes together.
type Objects struct {
	Count int
	Bytes int64
}

// Merge puts one segment of about so many bytes in the place of some.
type Merge struct {
	Segments []state.Segment
	Bytes    int64
}

// Deletion is what one rule deletes.
type Deletion struct {
	// Kind as in [Report.Pruned].
	Kind string
	Objects
	// Examples are the first keys, at most 8.
	Examples []string
}

// Plan makes a plan and changes nothing: it only lists and reads, also where there
// is no permission to write. It needs no token, for it takes nobody's place. What is
// to be deleted it learns by listing the whole log. Errors: those of
// [Compactor.Once], but for fences.
func (c *Compactor) Plan(ctx context.Context) (*Plan, error) {
	log, err := state.Open(ctx, c.st, &state.Options{Settle: c.opts.Settle, Clock: c.opts.Clock})
	if err != nil {
		return nil, err
	}
	m, err := log.Newest(ctx)
	if err != nil {
		return nil, err
	}
	// As the next one to be elected, whose predecessors are all fenced.
	p, err := c.begin(ctx, fence.NewToken(uint64(m.Roles[layout.Compactor].Epoch)+1))
	if err != nil {
		return nil, err
	}
	s, err := p.survey(ctx, false)
	if err != nil {
		return nil, err
	}
	s.epoch = uint64(p.token.Epoch())
	plan := &Plan{Version: s.m.Version, Floor: s.m.Floor, Merges: p.merges(s.m), Start: s.m.Start, Pins: s.pins.infos}
	if plan.Truncate, err = p.expired(ctx, s); err != nil {
		return nil, err
	}
	if plan.Fold, err = p.unfolded(ctx, s.m.Floor.Position); err != nil {
		return nil, err
	}
	if err := p.planDeletes(ctx, s, plan); err != nil {
		return nil, err
	}
	return plan, nil
}

// merges plays all merges of the segments that there are.
func (p *pass) merges(m *state.Manifest) []Merge {
	var all []Merge
	segs := slices.Clone(promised(m))
	for old := p.opts.levels().plan(segs); old != nil; old = p.opts.levels().plan(segs) {
		old = slices.Clone(old)
		sum := merged(old)
		all = append(all, Merge{old, sum.Size})
		i := slices.Index(segs, old[0])
		segs = slices.Replace(segs, i, i+len(old), sum)
	}
	return all
}

func (p *pass) unfolded(ctx context.Context, floor fence.Position) (Objects, error) {
	var o Objects
	r := rule{"", layout.DataPrefix, func(_ context.Context, info store.Info) (bool, error) {
		pos, ok := layout.ParseDataKey(info.Key)
		return ok && !pos.Before(floor), nil
	}}
	err := p.each(ctx, r, func(info store.Info) bool { o.Count++; o.Bytes += info.Size; return true })
	return o, err
}

func (p *pass) planDeletes(ctx context.Context, s *survey, plan *Plan) error {
	var rules []rule
	dead, err := p.anyDropped(ctx, s)
	if err != nil {
		return err
	}
	if s.horizon != nil {
		rules = append(rules, p.data(s), p.versions(s))
	}
	if dead {
		rules = append(rules, p.dead(s)...)
	}
	rules = append(rules, p.orphans(s)...)
	for _, r := range append(rules, tmp) {
		err := p.each(ctx, r, func(info store.Info) bool {
			plan.add(r.kind, info)
			return true
		})
		if err != nil {
			return err
		}
	}
	for _, r := range s.uploads() {
		st, ok := p.st.(store.UploadAborter)
		if !ok {
			break
		}
		_, err := st.AbortUploads(ctx, r.prefix, func(info store.Info) bool {
			if doomed, err := r.doomed(ctx, info); doomed && err == nil {
				plan.add(r.kind, info)
			}
			return false
		})
		if err != nil && !store.Permanent(err) {
			return err
		}
	}
	locks := &wouldDelete{Store: p.st}
	if err := p.pruneLocks(ctx, locks, func(int) {}); err != nil {
		return err
	}
	for _, key := range locks.keys {
		plan.add("lock", store.Info{Key: key})
	}
	return nil
}

// dead are the rules by which what was dropped is found in listings, for its size.
// A compactor deletes it by name.
func (p *pass) dead(s *survey) []rule {
	names := lazy(func(ctx context.Context, set *keySet) error {
		for d, err := range p.log.Dropped(ctx, s.m) {
			if err != nil {
				return err
			}
			if d.Version > s.upTo() {
				break
			}
			set.add(d.Key)
		}
		return nil
	})
	named := func(kind, prefix string) rule {
		return rule{kind, prefix, func(ctx context.Context, info store.Info) (bool, error) {
			if kindOf(info.Key) != kind {
				return false, nil
			}
			not, err := absent(ctx, names, info.Key)
			return !not, err
		}}
	}
	return []rule{named("segment", segmentPrefix), named("list", listPrefix), named("file", filePrefix)}
}

// wouldDelete is a store on which nothing can be changed, and which remembers what
// was to be deleted.
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
	if len(d.Examples) < 8 {
		d.Examples = append(d.Examples, info.Key)
	}
}

// String tells the plan to people, in several lines.
func (p *Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "by manifest %d, floor %v, offset %d\n", p.Version, p.Floor.Position, p.Floor.Offset)
	fmt.Fprintf(&b, "fold    up to %d objects, %d bytes\n", p.Fold.Count, p.Fold.Bytes)
	for _, m := range p.Merges {
		first, last := m.Segments[0], m.Segments[len(m.Segments)-1]
		fmt.Fprintf(&b, "merge   %d segments, records %d to %d, %d bytes\n", len(m.Segments), first.First, last.End-1, m.Bytes)
	}
	if p.Truncate > p.Start {
		fmt.Fprintf(&b, "give up records %d to %d\n", p.Start, p.Truncate-1)
	}
	for _, d := range p.Deletes {
		fmt.Fprintf(&b, "delete  %d × %s, %d bytes: %s", d.Count, d.Kind, d.Bytes, strings.Join(d.Examples, ", "))
		if d.Count > len(d.Examples) {
			b.WriteString(", …")
		}
		b.WriteByte('\n')
	}
	for _, pin := range p.Pins {
		fmt.Fprintf(&b, "held    manifest %d, by pin %q of %s\n", pin.Version, pin.Name, pin.Holder)
	}
	return b.String()
}
