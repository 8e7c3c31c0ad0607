package state

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
)

// EditsBetween reads the edits on the chain from one point to a later one. The error is
// store.ErrNotFound or fence.ErrCorrupt if some of the objects are pruned or damaged.
type EditsBetween func(ctx context.Context, from, to frame.Point) ([]AppliedEdit, error)

// Rebuild returns the bytes of a page of m that is damaged or lost, if another version that is
// still in the store has all its entries, or such a version and the edits after it on the chain.
// They are exactly the bytes that m names. Otherwise it returns nil.
func (l *Log) Rebuild(ctx context.Context, m *Manifest, key string, edits EditsBetween) ([]byte, error) {
	kept, err := l.Versions(ctx)
	if err != nil {
		return nil, err
	}
	first, walked := m, false // the oldest version that has the page, as far as is known
	// The page was made from a version before m, so begin with the newest of those. Version 0 is
	// the state before all of them.
	versions := append([]uint64{0}, slices.Sorted(maps.Keys(kept))...)
	for _, v := range slices.Backward(versions) {
		old, err := l.Promised(ctx, v)
		if damagedOrGone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if body, err := l.rebuildFrom(ctx, m, key, old, old); body != nil || err != nil {
			return body, err
		}
		switch named := slices.Contains(l.Lists(old), key); {
		case named && v < first.Version:
			first = old
		case named || walked || v >= first.Version || !old.Floor.Before(first.Floor):
		default:
			body, reached, err := l.rebuildAfter(ctx, first, key, old, edits)
			if body != nil || err != nil {
				return body, err
			}
			walked = reached
		}
	}
	return nil, nil
}

// rebuildAfter tries to make a page of version first, from an older version and the edits on the
// chain between the two. It reports whether it could read these edits.
func (l *Log) rebuildAfter(ctx context.Context, first *Manifest, key string, old *Manifest, edits EditsBetween) (body []byte, reached bool, err error) {
	between, err := edits(ctx, old.Floor, first.Floor)
	if err == nil {
		applied := old.clone()
		applied.Version = first.Version - 1 // which dropped what the edits remove
		if err = applied.apply(between); err == nil {
			body, err = l.rebuildFrom(ctx, first, key, old, applied)
			return body, true, err
		}
	}
	if damagedOrGone(err) {
		err = nil
	}
	return nil, false, err
}

// rebuildFrom tries to make a page of m from what the lists of one older version say. Have is that
// version, or like it with some edits applied.
func (l *Log) rebuildFrom(ctx context.Context, m *Manifest, key string, old, have *Manifest) ([]byte, error) {
	for _, rebuild := range []func() ([]byte, error){
		func() ([]byte, error) {
			return rebuildPage(ctx, l, &segmentList, key, m, m.SegmentPages, old, have.SegmentPages, have.Segments, nil)
		},
		func() ([]byte, error) {
			return rebuildPage(ctx, l, &sealList, key, m, m.SealPages, old, have.SealPages, have.Seals, nil)
		},
		func() ([]byte, error) {
			return rebuildPage(ctx, l, &droppedList, key, m, m.DroppedPages, old, have.DroppedPages, have.Dropped, nil)
		},
		func() ([]byte, error) {
			return rebuildPage(ctx, l, &removedList, key, m, m.RemovedPages, old, have.RemovedPages, have.Removed, func(keys []string) ([]string, error) {
				slices.Sort(keys)
				// What was removed from a page that was written again since is noted no more.
				return slices.DeleteFunc(slices.Compact(keys), func(key string) bool {
					i, j := pageOf(have.FilePages, key), pageOf(m.FilePages, key)
					return i < 0 || j < 0 || have.FilePages[i].Key != m.FilePages[j].Key
				}), nil
			})
		},
		func() ([]byte, error) {
			return rebuildPage(ctx, l, &fileList, key, m, m.FilePages, old, have.FilePages, have.Table.Files, func(files []manifest.File) ([]manifest.File, error) {
				removed, err := l.removed(ctx, have)
				if err != nil && !damagedOrGone(err) {
					return nil, err
				}
				slices.SortFunc(files, func(a, b manifest.File) int { return cmp.Compare(a.Key, b.Key) })
				return slices.DeleteFunc(files, func(f manifest.File) bool {
					_, gone := slices.BinarySearch(removed, f.Key)
					return gone
				}), nil
			})
		},
	} {
		if body, err := rebuild(); body != nil || err != nil {
			return body, err
		}
	}
	return nil, nil
}

func damagedOrGone(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, ErrPruned) || errors.Is(err, store.ErrNotFound)
}

// rebuildPage tries to make a page of a list from what one older version knows of that list. Live,
// if not nil, puts the entries in order, without those that are in the list no more.
func rebuildPage[E any, B uint64 | string](ctx context.Context, l *Log, li *list[E, B], key string, m *Manifest, named []Page[B], old *Manifest, pages []Page[B], inline []E, live func([]E) ([]E, error)) ([]byte, error) {
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
	if live != nil {
		var err error
		if have, err = live(have); err != nil {
			return nil, err
		}
	}
	var want []E
	for j := range have {
		if li.from(&have[j]) >= p.From && li.to(&have[j]) <= p.To {
			want = append(want, have[j])
		}
	}
	// Of dropped objects, those of one version may be in two pages.
	skip := 0
	if i > 0 && named[i-1].To >= p.From {
		before, err := readPage(ctx, l, m, li, named[i-1])
		if err != nil && !damagedOrGone(err) {
			return nil, err
		}
		for j := range before {
			if li.from(&before[j]) >= p.From {
				skip++
			}
		}
	}
	if len(want)-skip < p.Count {
		return nil, nil
	}
	body, made, err := li.encode(l.format.Log, key, want[skip:skip+p.Count])
	// guard:rebuild-same. A repair stores a page that it has made again only if size and checksum are
	// those that the newest manifest names.
	if err != nil || made != p {
		return nil, err
	}
	return body, nil
}
