package state

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sort"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
)

// This file reads the lists of a manifest, whether their entries are inline or in pages.
// The manifest must be promised: the newest, one above its prune mark, or a pinned one.
// Otherwise the error may be [ErrPruned]. Other errors are [fence.ErrCorrupt],
// [fence.ErrFormat] and the store's. An error ends the sequence.

// entries yields the entries of all pages for which skip is false, then the inline ones.
func entries[E any, B uint64 | string](ctx context.Context, l *Log, m *Manifest, li *list[E, B], pages []Page[B], inline []E, skip func(Page[B]) bool) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for _, p := range pages {
			if skip(p) {
				continue
			}
			paged, err := readPage(ctx, l, m, li, p)
			if err != nil {
				var none E
				yield(none, err)
				return
			}
			for _, e := range paged {
				if !yield(e, nil) {
					return
				}
			}
		}
		for _, e := range inline {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Segments yields, in order, the segments that m names with records at offset from or
// later. That includes truncated segments that are not dropped yet; begin at
// [Manifest.First] to skip them.
func (l *Log) Segments(ctx context.Context, m *Manifest, from uint64) iter.Seq2[Segment, error] {
	all := entries(ctx, l, m, &segmentList, m.SegmentPages, m.Segments, func(p Page[uint64]) bool { return p.To <= from })
	return filter(all, func(s Segment) bool { return s.End > from })
}

// SegmentOf returns the segment that holds the record at an offset. The error is [ErrPruned]
// if the record is before [Manifest.Held] or not folded yet.
func (l *Log) SegmentOf(ctx context.Context, m *Manifest, offset uint64) (Segment, error) {
	if offset < m.Held() || offset >= m.Floor.Offset {
		return Segment{}, fmt.Errorf("%w: there is no segment with offset %d: in manifest %d the log begins at %d and is folded up to %d",
			ErrPruned, offset, m.Version, m.First(), m.Floor.Offset)
	}
	for s, err := range l.Segments(ctx, m, offset) {
		return s, err
	}
	// Unreachable: the lists of a manifest that was read have no gaps.
	return Segment{}, document.Corrupt(layout.ManifestKey(m.Version), "no segment has offset %d", offset)
}

// Seals yields all seals on the chain before m's floor, in order.
func (l *Log) Seals(ctx context.Context, m *Manifest) iter.Seq2[Seal, error] {
	return entries(ctx, l, m, &sealList, m.SealPages, m.Seals, func(Page[uint64]) bool { return false })
}

// SealOf returns the seal that ended epoch e; ok is false if none on the chain before m's
// floor did.
func (l *Log) SealOf(ctx context.Context, m *Manifest, e fence.Epoch) (seal Seal, ok bool, err error) {
	seals := m.Seals
	i := sort.Search(len(m.SealPages), func(i int) bool { return m.SealPages[i].To > uint64(e) })
	if i < len(m.SealPages) {
		if seals, err = readPage(ctx, l, m, &sealList, m.SealPages[i]); err != nil {
			return Seal{}, false, err
		}
	}
	i, ok = slices.BinarySearchFunc(seals, e, func(s Seal, e fence.Epoch) int { return cmp.Compare(s.Position.Epoch, e) })
	if !ok {
		return Seal{}, false, nil
	}
	return seals[i], true, nil
}

// Dropped yields the objects that can be deleted once no version that is promised names
// them, in order of the version that dropped them.
func (l *Log) Dropped(ctx context.Context, m *Manifest) iter.Seq2[Dropped, error] {
	all := entries(ctx, l, m, &droppedList, m.DroppedPages, m.Dropped, func(p Page[uint64]) bool { return p.To <= m.Forgotten })
	return filter(all, func(d Dropped) bool { return d.Version > m.Forgotten })
}

// Files yields the files that are live in m, in order of their keys.
func (l *Log) Files(ctx context.Context, m *Manifest) iter.Seq2[manifest.File, error] {
	return func(yield func(manifest.File, error) bool) {
		added := m.Table.Files
		removed, err := l.removed(ctx, m)
		if err != nil {
			yield(manifest.File{}, err)
			return
		}
		paged := entries(ctx, l, m, &fileList, m.FilePages, nil, func(Page[string]) bool { return false })
		for f, err := range paged {
			if err != nil {
				yield(f, err)
				return
			}
			for ; len(added) > 0 && added[0].Key < f.Key; added = added[1:] {
				if !yield(added[0], nil) {
					return
				}
			}
			for len(removed) > 0 && removed[0] < f.Key {
				removed = removed[1:]
			}
			if len(removed) > 0 && removed[0] == f.Key {
				continue
			}
			if !yield(f, nil) {
				return
			}
		}
		for _, f := range added {
			if !yield(f, nil) {
				return
			}
		}
	}
}

// removed returns the files in pages that are no longer live, in order: at most about
// [maxRemoved].
func (l *Log) removed(ctx context.Context, m *Manifest) ([]string, error) {
	if len(m.RemovedPages) == 0 {
		return m.Removed, nil
	}
	removed := slices.Clone(m.Removed)
	for key, err := range entries(ctx, l, m, &removedList, m.RemovedPages, nil, func(Page[string]) bool { return false }) {
		if err != nil {
			return nil, err
		}
		removed = append(removed, key)
	}
	slices.Sort(removed)
	return slices.Compact(removed), nil
}

// PageRef is a page that a manifest names, and a function that reads it and returns what is
// wrong with it.
type PageRef struct {
	Key   string
	Check func(context.Context) error
}

// Pages returns all pages that m names.
func (l *Log) Pages(m *Manifest) []PageRef {
	return slices.Concat(
		pageRefs(l, m, &segmentList, m.SegmentPages), pageRefs(l, m, &sealList, m.SealPages), pageRefs(l, m, &droppedList, m.DroppedPages),
		pageRefs(l, m, &fileList, m.FilePages), pageRefs(l, m, &removedList, m.RemovedPages),
	)
}

func pageRefs[E any, B uint64 | string](l *Log, m *Manifest, li *list[E, B], pages []Page[B]) (refs []PageRef) {
	for _, p := range pages {
		refs = append(refs, PageRef{p.Key, func(ctx context.Context) error {
			_, err := readPage(ctx, l, m, li, p)
			return err
		}})
	}
	return refs
}

// Lists returns the keys of all pages that m names.
func (l *Log) Lists(m *Manifest) []string {
	var keys []string
	for _, p := range l.Pages(m) {
		keys = append(keys, p.Key)
	}
	return keys
}

func filter[E any](all iter.Seq2[E, error], keep func(E) bool) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		for e, err := range all {
			if (err != nil || keep(e)) && !yield(e, err) {
				return
			}
		}
	}
}
