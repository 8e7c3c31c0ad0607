package state

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
)

// Page names an immutable object with a run of one of the manifest's lists.
type Page[B uint64 | string] struct {
	// Key is one that [ListKey] makes.
	Key string `json:"key"`
	// Count is how many entries it has, at least 1.
	Count int `json:"count"`
	// Size of the object, in bytes, and the CRC-32C of these bytes.
	Size   int64  `json:"size"`
	CRC32C uint32 `json:"crc32c"`
	// From and To say what it covers. Of segments: the offset of the first record, and the
	// one after the last. Of seals: the epoch that the first ended, and the one that the
	// last opened. Of dropped objects: the least version and the greatest. Of files: the
	// first key and the last.
	From B `json:"from"`
	To   B `json:"to"`
}

// pageOf returns which of the pages covers a place, both ends included, or -1.
func pageOf[B uint64 | string](pages []Page[B], place B) int {
	i := sort.Search(len(pages), func(i int) bool { return pages[i].To >= place })
	if i == len(pages) || pages[i].From > place {
		return -1
	}
	return i
}

// list describes one of the lists that have pages.
type list[E any, B uint64 | string] struct {
	name string
	// from and to are what a page covers that begins, or ends, with an entry.
	from, to func(*E) B
	// check refuses an entry, or one that cannot follow prev, which is nil for the
	// first of a page.
	check func(prev, e *E) error
	// weight is at least how many bytes an entry takes in JSON.
	weight func(*E) int
}

var (
	segmentList = list[Segment, uint64]{
		"segments", func(s *Segment) uint64 { return s.First }, func(s *Segment) uint64 { return s.End }, checkSegment,
		func(s *Segment) int {
			return layout.TextLen(s.Key) + digits(s.First) + digits(s.End) + digits(uint64(s.Size)) + digits(uint64(s.Index)) + 140
		},
	}
	sealList = list[Seal, uint64]{
		"seals", func(s *Seal) uint64 { return uint64(s.Position.Epoch) }, func(s *Seal) uint64 { return uint64(s.Next) }, checkSeal,
		func(s *Seal) int {
			return digits(uint64(s.Position.Epoch)) + digits(s.Position.Seq) + digits(uint64(s.Next)) + digits(s.Offset) + 100
		},
	}
	droppedList = list[Dropped, uint64]{
		"dropped", func(d *Dropped) uint64 { return d.Version }, func(d *Dropped) uint64 { return d.Version }, checkDropped,
		func(d *Dropped) int { return layout.TextLen(d.Key) + digits(d.Version) + 30 },
	}
	fileList = list[manifest.File, string]{
		"files", func(f *manifest.File) string { return f.Key }, func(f *manifest.File) string { return f.Key }, checkFile,
		func(f *manifest.File) int {
			return layout.TextLen(f.Key) + digits(uint64(f.Size)) + digits(uint64(f.CRC32C)) + digits(f.Records) + 70 + layout.TextsLen(f.Meta)
		},
	}
)

var removedList = list[string, string]{
	"removed", func(key *string) string { return *key }, func(key *string) string { return *key }, checkRemoved,
	func(key *string) int { return layout.TextLen(*key) + 3 },
}

// pageDoc is what the object of a page says.
type pageDoc[E any] struct {
	Format int      `json:"format"`
	Log    fence.ID `json:"log"`
	// Key is the object's own, so that no two have the same bytes and none can
	// stand for another.
	Key     string `json:"key"`
	List    string `json:"list"`
	Entries []E    `json:"entries"`
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encode returns the object of a page and how a manifest names it.
func (li *list[E, B]) encode(log fence.ID, key string, entries []E) ([]byte, Page[B], error) {
	b, err := document.Encode(key, pageDoc[E]{document.Format, log, key, li.name, entries})
	if err != nil {
		return nil, Page[B]{}, fmt.Errorf("manifest: %w", err)
	}
	n := len(entries)
	return b, Page[B]{Key: key, Count: n, Size: int64(len(b)), CRC32C: crc32.Checksum(b, castagnoli), From: li.from(&entries[0]), To: li.to(&entries[n-1])}, nil
}

// digest is the same for entries that make the same page.
func (li *list[E, B]) digest(entries []E) ([sha256.Size]byte, error) {
	b, err := json.Marshal(pageDoc[E]{List: li.name, Entries: entries})
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("manifest: %w", err)
	}
	return sha256.Sum256(b), nil
}

// decode reads a page and checks that it is the one that a manifest names.
func (li *list[E, B]) decode(log fence.ID, p Page[B], body []byte) ([]E, error) {
	var doc pageDoc[E]
	if err := document.Decode(p.Key, body, &doc); err != nil {
		return nil, err
	}
	n := len(doc.Entries)
	// guard:page-identity. A page says its log, its list and its key, and all three must be those that
	// the manifest's reader expects.
	//
	//mutant:replace doc.Log != log => false
	//mutant:replace doc.Key != p.Key || doc.List != li.name => false
	switch {
	case doc.Log != log:
		return nil, document.Corrupt(p.Key, "it belongs to log %s, this is log %s", doc.Log, log)
	case doc.Key != p.Key || doc.List != li.name:
		return nil, document.Corrupt(p.Key, "it says that it is %s of %q, the manifest says %q", doc.Key, doc.List, li.name)
	case n != p.Count || int64(len(body)) != p.Size:
		// guard:page-count. A page must have as many entries and bytes as the manifest says.
		return nil, document.Corrupt(p.Key, "it has %d entries in %d bytes, the manifest says %d in %d", n, len(body), p.Count, p.Size)
	case crc32.Checksum(body, castagnoli) != p.CRC32C:
		// guard:page-content. A page must have the checksum that the manifest names for it.
		return nil, document.Corrupt(p.Key, "its bytes have the checksum %08x, the manifest says %08x", crc32.Checksum(body, castagnoli), p.CRC32C)
	case n == 0:
		return nil, document.Corrupt(p.Key, "it has no entry")
	case li.from(&doc.Entries[0]) != p.From || li.to(&doc.Entries[n-1]) != p.To:
		// guard:page-bounds. The first and the last entry of a page must be those that the manifest
		// says, because readers choose a page by them.
		return nil, document.Corrupt(p.Key, "it covers %v to %v, the manifest says %v to %v", li.from(&doc.Entries[0]), li.to(&doc.Entries[n-1]), p.From, p.To)
	}
	var prev *E
	for i := range doc.Entries {
		// guard:page-order. The entries of a page must be in order.
		if err := li.check(prev, &doc.Entries[i]); err != nil {
			return nil, document.Corrupt(p.Key, "entry %d: %v", i, err)
		}
		prev = &doc.Entries[i]
	}
	return doc.Entries, nil
}

// readPage returns the entries of a page of m. The caller must not change them.
func readPage[E any, B uint64 | string](ctx context.Context, l *Log, m *Manifest, li *list[E, B], p Page[B]) ([]E, error) {
	if v, ok := l.pages.get(p.Key); ok {
		if entries, ok := v.([]E); ok {
			return entries, nil
		}
	}
	body, _, err := store.Read(ctx, l.st, p.Key, &store.ReadOptions{Limit: p.Size, Settle: l.opts.Settle})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, l.missingPage(ctx, m, p.Key)
	case errors.Is(err, store.ErrTooLarge):
		return nil, document.Corrupt(p.Key, "%v", err)
	case err != nil:
		return nil, err
	}
	entries, err := li.decode(l.format.Log, p, body)
	if err != nil {
		return nil, fmt.Errorf("manifest %d: %w", m.Version, err)
	}
	l.pages.put(p.Key, entries)
	return entries, nil
}

// missingPage tells a pruned page from a lost one: the pages of a manifest are in the
// store as long as it is promised.
func (l *Log) missingPage(ctx context.Context, m *Manifest, key string) error {
	now, err := l.Newest(ctx)
	switch {
	case err != nil:
		return err
	case m.Version <= now.PruneMark:
		// guard:page-gone. A missing page is not damage if its manifest is at or below the prune mark:
		// nothing that such a manifest names is promised.
		return fmt.Errorf("%w: manifest %d is not promised any more, and its page %s has been pruned; go on with the newest, which is %d, or pin a version before reading it at leisure",
			ErrPruned, m.Version, key, now.Version)
	}
	return document.Corrupt(key, "it is missing; manifest %d names it; restore it from a backup; run `fencepost verify` to see the extent", m.Version)
}
