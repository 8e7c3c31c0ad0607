package state

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// Rebuild returns the bytes of a page of m that is damaged or lost, if another version that is
// still in the store has all its entries. They are exactly the bytes that m names. Otherwise it
// returns nil.
func (l *Log) Rebuild(ctx context.Context, m *Manifest, key string) ([]byte, error) {
	kept, err := l.Versions(ctx)
	if err != nil {
		return nil, err
	}
	// The page was made from a version before m, so begin with the newest of those.
	for _, v := range slices.Backward(slices.Sorted(maps.Keys(kept))) {
		old, _, err := l.At(ctx, v)
		if damagedOrGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, rebuild := range []func() ([]byte, error){
			func() ([]byte, error) {
				return rebuildPage(ctx, l, &segmentList, key, m.SegmentPages, old, old.SegmentPages, old.Segments)
			},
			func() ([]byte, error) {
				return rebuildPage(ctx, l, &sealList, key, m.SealPages, old, old.SealPages, old.Seals)
			},
			func() ([]byte, error) {
				return rebuildPage(ctx, l, &droppedList, key, m.DroppedPages, old, old.DroppedPages, old.Dropped)
			},
			func() ([]byte, error) {
				return rebuildPage(ctx, l, &removedList, key, m.RemovedPages, old, old.RemovedPages, old.Removed)
			},
			func() ([]byte, error) {
				return rebuildPage(ctx, l, &fileList, key, m.FilePages, old, old.FilePages, old.Table.Files)
			},
		} {
			if body, err := rebuild(); body != nil || err != nil {
				return body, err
			}
		}
	}
	return nil, nil
}

func damagedOrGone(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, ErrPruned) || errors.Is(err, store.ErrNotFound)
}

// rebuildPage tries to make a page of a list from what one older version knows of that list.
func rebuildPage[E any, B uint64 | string](ctx context.Context, l *Log, li *list[E, B], key string, named []Page[B], old *Manifest, pages []Page[B], inline []E) ([]byte, error) {
	i := slices.IndexFunc(named, func(p Page[B]) bool { return p.Key == key })
	if i < 0 {
		return nil, nil
	}
	p := named[i]
	var have []E
	for _, q := range pages {
		if q.Key == key || q.To < p.From || q.From > p.To {
			continue
		}
		entries, err := readPage(ctx, l, old, li, q)
		if damagedOrGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		have = append(have, entries...)
	}
	have = append(have, inline...)
	live := func(E) bool { return true }
	if files, ok := any(&have).(*[]manifest.File); ok {
		removed, err := l.removed(ctx, old)
		if err != nil && !damagedOrGone(err) {
			return nil, err
		}
		slices.SortFunc(*files, func(a, b manifest.File) int { return bytes.Compare([]byte(a.Key), []byte(b.Key)) })
		live = func(e E) bool {
			_, gone := slices.BinarySearch(removed, any(e).(manifest.File).Key)
			return !gone
		}
	}
	var want []E
	for j := range have {
		if li.from(&have[j]) >= p.From && li.to(&have[j]) <= p.To && live(have[j]) {
			want = append(want, have[j])
		}
	}
	if len(want) != p.Count {
		return nil, nil
	}
	body, made, err := li.encode(l.format.Log, key, want)
	// guard:rebuild-same. A repair makes a lost page again from an older manifest version. It
	// stores the page only if size and checksum are those that the newest manifest names. Without
	// this check: the older manifest version names as many segments for these records, but other
	// ones, which a merge has replaced since; the repaired page names these segments, although a
	// compactor has deleted them.
	if err != nil || made != p {
		return nil, err
	}
	return body, nil
}
