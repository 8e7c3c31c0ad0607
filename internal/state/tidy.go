package state

import (
	"context"
	"crypto/sha256"
	"slices"
	"strconv"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
)

const (
	// MaxInline is about how many entries of each list a manifest holds itself. When there
	// are more, the oldest go to pages until half of MaxInline are left.
	MaxInline = 1024
	// pageEntries is how many entries a page has at most.
	pageEntries = 4 * MaxInline
	// fewEntries is how many are too few for a page, if it has a neighbour.
	fewEntries = MaxInline / 2
	// maxRemoved is how many files that are no longer live may still be in pages.
	maxRemoved = 8 * MaxInline
	// uploadsAtOnce is how many pages are uploaded at the same time.
	uploadsAtOnce = 4
)

// room is how many bytes of a manifest are left beside the cursors.
func room(l fence.Limits) int { return int(l.Manifest - 2*layout.Base64(l.Cursor)) }

// inlineBytes bounds each list of a manifest, and pageBytes a page.
func inlineBytes(l fence.Limits) int { return min(room(l)/8, 256<<10) }
func pageBytes(l fence.Limits) int   { return min(room(l)/4, 1<<20) }

// pager makes the pages of one update. It remembers them: an update that is repeated on a
// manifest with the same lists uploads nothing twice.
type pager struct {
	log   *Log
	role  layout.Role
	epoch fence.Epoch
	made  map[[sha256.Size]byte]any // a Page

	uploads *errgroup.Group // of one tidying
}

// tidy moves what is too long in next to pages, and returns when these are in the store.
// An update that fails after that leaves them as orphans of the updater's epoch.
func (p *pager) tidy(ctx context.Context, next *Manifest) error {
	p.uploads, ctx = errgroup.WithContext(ctx)
	p.uploads.SetLimit(uploadsAtOnce)
	err := p.lists(ctx, next)
	// guard:pages-first. All pages are stored before the manifest that names them.
	//
	//mutant:replace p.uploads.Wait() => error(nil)
	if uerr := p.uploads.Wait(); uerr != nil {
		return uerr
	}
	return err
}

func (p *pager) lists(ctx context.Context, next *Manifest) error {
	if next.release > 0 {
		if err := p.release(ctx, next); err != nil {
			return err
		}
	}
	next.forget()
	var replaced [3][]string
	var err error
	if next.SegmentPages, next.Segments, replaced[0], err = spill(ctx, p, next, &segmentList, next.SegmentPages, next.Segments); err != nil {
		return err
	}
	if next.SealPages, next.Seals, replaced[1], err = spill(ctx, p, next, &sealList, next.SealPages, next.Seals); err != nil {
		return err
	}
	if err := p.files(ctx, next); err != nil {
		return err
	}
	for _, keys := range replaced {
		next.drop(keys...)
	}
	if next.DroppedPages, next.Dropped, replaced[2], err = spill(ctx, p, next, &droppedList, next.DroppedPages, next.Dropped); err != nil {
		return err
	}
	next.drop(replaced[2]...)
	return nil
}

// spill moves the oldest entries of a list to its pages if it is too long, and
// fills up the last page while it has room.
func spill[E any, B uint64 | string](ctx context.Context, p *pager, m *Manifest, li *list[E, B], pages []Page[B], inline []E) (_ []Page[B], _ []E, replaced []string, err error) {
	budget := inlineBytes(p.log.format.Limits)
	if len(inline) <= MaxInline && weight(li, inline) <= budget {
		return pages, inline, nil, nil
	}
	n := 0
	for left := weight(li, inline); len(inline)-n > MaxInline/2 || left > budget/2; n++ {
		left -= li.weight(&inline[n])
	}
	old, inline := inline[:n], slices.Clone(inline[n:])
	if k := len(pages) - 1; k >= 0 && p.fits(pages[k].Count+n, int(pages[k].Size)+weight(li, old)) {
		entries, err := readPage(ctx, p.log, m, li, pages[k])
		if err != nil {
			return nil, nil, nil, err
		}
		old, replaced, pages = slices.Concat(entries, old), []string{pages[k].Key}, pages[:k]
	}
	made, err := makePages(ctx, p, li, old)
	return append(pages, made...), inline, replaced, err
}

// release drops the segments that [Change.Release] has named.
func (p *pager) release(ctx context.Context, m *Manifest) error {
	gone := func(s Segment) bool { return s.End <= m.release }
	for len(m.SegmentPages) > 0 && m.SegmentPages[0].From < m.release {
		page := m.SegmentPages[0]
		entries, err := readPage(ctx, p.log, m, &segmentList, page)
		if err != nil {
			return err
		}
		n := 0
		for ; n < len(entries) && gone(entries[n]); n++ {
			m.drop(entries[n].Key)
		}
		if n == 0 {
			return nil
		}
		m.drop(page.Key)
		rest, err := makePages(ctx, p, &segmentList, entries[n:])
		if err != nil {
			return err
		}
		m.SegmentPages = append(rest, m.SegmentPages[1:]...)
		if len(rest) > 0 {
			return nil
		}
	}
	if len(m.SegmentPages) > 0 {
		return nil
	}
	n := 0
	for ; n < len(m.Segments) && gone(m.Segments[n]); n++ {
		m.drop(m.Segments[n].Key)
	}
	m.Segments = slices.Delete(m.Segments, 0, n)
	return nil
}

// forget removes what is forgotten from the list of dropped objects.
func (m *Manifest) forget() {
	gone := func(d Dropped) bool { return d.Version <= m.Forgotten }
	n := 0
	for ; n < len(m.DroppedPages) && m.DroppedPages[n].To <= m.Forgotten; n++ {
	}
	keys := make([]string, n)
	for i, page := range m.DroppedPages[:n] {
		keys[i] = page.Key
	}
	m.DroppedPages = slices.Delete(m.DroppedPages, 0, n)
	m.Dropped = slices.DeleteFunc(m.Dropped, gone)
	m.drop(keys...)
}

func (p *pager) fits(entries, bytes int) bool {
	return entries <= pageEntries && bytes <= pageBytes(p.log.format.Limits)
}

// makePages puts entries into as few pages as possible, of about the same size.
func makePages[E any, B uint64 | string](ctx context.Context, p *pager, li *list[E, B], entries []E) ([]Page[B], error) {
	budget := pageBytes(p.log.format.Limits)
	n, bytes := len(entries), weight(li, entries)
	count := max((n+pageEntries-1)/pageEntries, (bytes+budget-1)/budget, 1)
	each := (n + count - 1) / count
	var pages []Page[B]
	for len(entries) > 0 {
		k, size := 0, 0
		for ; k < min(each, len(entries)) && (k == 0 || size+li.weight(&entries[k]) <= budget); k++ {
			size += li.weight(&entries[k])
		}
		page, err := makePage(ctx, p, li, entries[:k:k])
		if err != nil {
			return nil, err
		}
		pages, entries = append(pages, page), entries[k:]
	}
	return pages, nil
}

func makePage[E any, B uint64 | string](ctx context.Context, p *pager, li *list[E, B], entries []E) (Page[B], error) {
	// guard:page-reuse. An update that is tried again names a page of its earlier try only if all
	// entries are still the same.
	//
	//mutant:replace li.digest(entries) => li.digest(entries[:1])
	digest, err := li.digest(entries)
	if err != nil {
		return Page[B]{}, err
	}
	if page, ok := p.made[digest].(Page[B]); ok {
		return page, nil
	}
	body, page, err := li.encode(p.log.format.Log, layout.ListKey(p.role, p.epoch, uuid.NewString()), entries)
	if err != nil {
		return Page[B]{}, err
	}
	p.made[digest] = page
	p.uploads.Go(func() error {
		_, err := store.Create(ctx, p.log.st, page.Key, body, &store.WriteOptions{Settle: p.log.opts.Settle})
		return err
	})
	p.log.pages.put(page.Key, entries)
	return page, nil
}

// weight is at least how many bytes entries take in JSON, and not much more.
func weight[E any, B uint64 | string](li *list[E, B], entries []E) int {
	n := 0
	for i := range entries {
		n += li.weight(&entries[i])
	}
	return n
}

func digits(n uint64) int { return len(strconv.FormatUint(n, 10)) }
