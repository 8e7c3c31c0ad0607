package state

import (
	"cmp"
	"context"
	"slices"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
)

// files moves changes of the table to its pages if they are too many. Rewriting a page
// costs the same however little changes in it. So removals, which may be anywhere, are
// first collected in pages of their own, and the pages with the most changes are
// rewritten first.
func (p *pager) files(ctx context.Context, m *Manifest) error {
	budget := inlineBytes(p.log.format.Limits)
	added, removed := len(m.Table.Files), len(m.Removed)
	if added+removed <= MaxInline && weight(&fileList, m.Table.Files)+weight(&removedList, m.Removed) <= budget {
		return nil
	}
	all, err := p.log.removed(ctx, m)
	if err != nil {
		return err
	}
	w := fileWriter{pager: p, m: m}
	for _, page := range m.RemovedPages {
		w.replaced = append(w.replaced, page.Key)
	}
	groups := m.fileGroups(all)
	bytes := weight(&fileList, m.Table.Files)
	w.choose(groups, func(g *fileGroup) int { return len(g.added) }, func(g *fileGroup) bool {
		enough := added <= MaxInline/2 && bytes <= budget/2
		added, bytes = added-len(g.added), bytes-weight(&fileList, g.added)
		return enough
	})
	if removed = len(all); removed > maxRemoved {
		w.choose(groups, func(g *fileGroup) int { return len(g.removed) }, func(g *fileGroup) bool {
			enough := removed <= maxRemoved/2
			removed -= len(g.removed)
			return enough
		})
	}
	for i := range groups {
		g := &groups[i]
		// More than half of the page is dead: rewriting it costs less than it saves.
		g.write = g.write || g.page != nil && len(g.removed) > g.page.Count/2
		if err := w.group(ctx, g, i == len(groups)-1); err != nil {
			return err
		}
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	m.Table.Files, m.Removed, m.FilePages, m.RemovedPages = w.added, w.removed, w.pages, nil
	if len(m.Removed) > MaxInline/4 || weight(&removedList, m.Removed) > budget/4 {
		if m.RemovedPages, err = makePages(ctx, p, &removedList, m.Removed); err != nil {
			return err
		}
		m.Removed = nil
	}
	m.drop(w.replaced...)
	return nil
}

// choose marks groups to be rewritten, those with the most changes first, until enough
// says so.
func (w *fileWriter) choose(groups []fileGroup, changes func(*fileGroup) int, enough func(*fileGroup) bool) {
	order := make([]*fileGroup, len(groups))
	for i := range groups {
		order[i] = &groups[i]
	}
	slices.SortStableFunc(order, func(a, b *fileGroup) int { return cmp.Compare(changes(b), changes(a)) })
	for _, g := range order {
		if changes(g) == 0 || enough(g) {
			return
		}
		g.write = true
	}
}

// fileGroup is a page of files with the changes that belong to it.
type fileGroup struct {
	page    *Page[string] // nil if there are no pages yet
	added   []manifest.File
	removed []string
	write   bool // the page is to be rewritten
}

// fileGroups assigns each change to the last page that begins before it, or to the first
// page.
func (m *Manifest) fileGroups(removed []string) []fileGroup {
	groups := make([]fileGroup, max(1, len(m.FilePages)))
	added := m.Table.Files
	for i := range groups {
		g := &groups[i]
		if i < len(m.FilePages) {
			g.page = &m.FilePages[i]
		}
		a, r := len(added), len(removed)
		if i+1 < len(groups) {
			next := m.FilePages[i+1].From
			a, _ = slices.BinarySearchFunc(added, next, func(f manifest.File, key string) int { return cmp.Compare(f.Key, key) })
			r, _ = slices.BinarySearch(removed, next)
		}
		g.added, added = added[:a], added[a:]
		g.removed, removed = removed[:r], removed[r:]
	}
	return groups
}

// fileWriter goes through the groups in order and makes the new list of pages. It
// holds the files of a page or two.
type fileWriter struct {
	*pager
	m        *Manifest
	pages    []Page[string]
	added    []manifest.File // that stay inline
	removed  []string        // likewise
	replaced []string
	held     []manifest.File // too few for a page, for the next one
}

func (w *fileWriter) group(ctx context.Context, g *fileGroup, last bool) error {
	if g.page != nil && !g.write {
		// A small page before this one is merged into it if both fit into one.
		if len(w.held) == 0 || !w.fits(g.page.Count+len(w.held), int(g.page.Size)+weight(&fileList, w.held)) {
			if err := w.flush(ctx); err != nil {
				return err
			}
			w.pages = append(w.pages, *g.page)
			w.added, w.removed = append(w.added, g.added...), append(w.removed, g.removed...)
			return nil
		}
	}
	files := g.added
	switch {
	case g.page == nil:
	case last && len(w.held) == 0 && len(g.removed) == 0 && len(g.added) > 0 && g.added[0].Key > g.page.To && !w.fits(g.page.Count+len(g.added), int(g.page.Size)+weight(&fileList, g.added)):
		// All of them come after the last page, which is full.
		w.pages = append(w.pages, *g.page)
	default:
		old, err := readPage(ctx, w.log, w.m, &fileList, *g.page)
		if err != nil {
			return err
		}
		if files, err = mergeFiles(g.page.Key, old, g.added, g.removed); err != nil {
			return err
		}
		w.replaced = append(w.replaced, g.page.Key)
	}
	w.held = append(w.held, files...)
	if len(w.held) < fewEntries && !last {
		return nil
	}
	return w.flush(ctx)
}

func (w *fileWriter) flush(ctx context.Context) error {
	made, err := makePages(ctx, w.pager, &fileList, w.held)
	w.pages, w.held = append(w.pages, made...), nil
	return err
}

// mergeFiles returns the files of a page after changes, in order of their keys.
func mergeFiles(page string, old, added []manifest.File, removed []string) ([]manifest.File, error) {
	files := make([]manifest.File, 0, len(old)+len(added))
	for _, f := range old {
		for ; len(added) > 0 && added[0].Key < f.Key; added = added[1:] {
			files = append(files, added[0])
		}
		// guard:page-twice. A file that is added must not be in a page already.
		//
		//mutant:replace len(added) > 0 && added[0].Key == f.Key => false
		if len(added) > 0 && added[0].Key == f.Key {
			return nil, document.Corrupt(page, "the page is sound, but an edit of a faulty writer has added %s, which is in it already", f.Key)
		}
		for len(removed) > 0 && removed[0] < f.Key {
			removed = removed[1:]
		}
		if len(removed) == 0 || removed[0] != f.Key {
			files = append(files, f)
		}
	}
	return append(files, added...), nil
}
