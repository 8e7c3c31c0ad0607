package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// pageOfSeals is a page, and how a manifest names it.
func pageOfSeals(t testing.TB) ([]byte, Page[uint64], []Seal) {
	t.Helper()
	seals := []Seal{
		{Position: frame.Genesis(), Next: 1, Nonce: fence.ID{3}},
		{Position: fence.Position{Epoch: 1, Seq: 9}, Next: 3, Nonce: fence.ID{4}, Offset: 900},
		{Position: fence.Position{Epoch: 3, Seq: 2}, Next: 4, Nonce: fence.ID{5}, Offset: 900},
	}
	body, page, err := sealList.encode(testLog, testPage(4), seals)
	if err != nil {
		t.Fatal(err)
	}
	return body, page, seals
}

func TestGoldenPage(t *testing.T) {
	body, page, seals := pageOfSeals(t)
	want := fixture.Golden(t, "page.json", body)
	if !bytes.Equal(body, want) {
		t.Errorf("encoded\n%s\nthe file has\n%s", body, want)
	}
	if page != (Page[uint64]{Key: testPage(4), Count: 3, Size: int64(len(body)), CRC32C: crc32.Checksum(body, castagnoli), From: 0, To: 4}) {
		t.Errorf("%+v", page)
	}
	got, err := sealList.decode(testLog, page, want)
	if err != nil || fmt.Sprint(got) != fmt.Sprint(seals) {
		t.Errorf("decoded %v, %v", got, err)
	}
}

// guard:page-identity. Without this check: a faulty program names a page of another log or list in the
// manifest, with that page's right checksum; a reader takes its entries for entries of this list.
//
// guard:page-count. Without this check: a faulty program says in the manifest that a page has 4 files,
// and the page, whose checksum is right, has 3; a reader that counts the files by the manifest says 4,
// and one that reads the page finds 3.
//
// guard:page-content. Without this check: somebody makes a lost page again, under the same key and of
// the same size, but with other entries; a reader takes these entries for those of the manifest.
//
// guard:page-bounds. Without this check: a faulty program says in a manifest that a page of segments
// covers the offsets 0 to 900; the page has the right checksum, but its first segment begins at offset
// 100; a reader reads from offset 50 on; it gets record 100 first, and is not told that the records 50
// to 99 are missing.
//
// guard:page-order. Without this check: a faulty program writes a page that is not sorted, and names it
// with its right checksum; a reader searches the page by halves, and does not find an entry that is
// there.
func TestPageRefuses(t *testing.T) {
	for name, tt := range map[string]struct {
		page     func(*Page[uint64])
		old, new string // in the body
		says     string
	}{
		"guard:page-identity. another log":     {old: "10111213", new: "20111213", says: "belongs to log 20"},
		"guard:page-identity. another's name":  {page: func(p *Page[uint64]) { p.Key = testPage(5) }, says: `the manifest says "seals"`},
		"guard:page-identity. another list":    {old: `"list": "seals"`, new: `"list": "files"`, says: `of "files"`},
		"guard:page-count. fewer than it says": {page: func(p *Page[uint64]) { p.Count = 4 }, says: "it has 3 entries"},
		"guard:page-count. more":               {page: func(p *Page[uint64]) { p.Count = 2 }, says: "it has 3 entries"},
		"guard:page-count. another size":       {page: func(p *Page[uint64]) { p.Size++ }, says: "bytes"},
		"guard:page-content. another page":     {old: `"offset":900`, new: `"offset":901`, says: "its bytes have the checksum"},
		"guard:page-bounds. begins later":      {page: func(p *Page[uint64]) { p.From = 1 }, says: "covers 0 to 4"},
		"guard:page-bounds. ends earlier":      {page: func(p *Page[uint64]) { p.To = 5 }, says: "covers 0 to 4"},
		"guard:page-order. a gap":              {old: `"epoch":3,"seq":2`, new: `"epoch":2,"seq":2`, says: "entry 2"},
		"guard:page-order. no entry":           {old: `"epoch":1,"seq":9`, new: `"epoch":1,"seq":0`, says: "entry 1"},
		"no entries":                           {old: `"entries"`, new: `"Xntries"`, says: "it has 0 entries"},
		"no JSON":                              {old: `]`, new: `}`, says: "invalid character"},
	} {
		t.Run(name, func(t *testing.T) {
			body, page, _ := pageOfSeals(t)
			if tt.page != nil {
				tt.page(&page)
			}
			body = document.Sum(page.Key, bytes.Replace(body, []byte(tt.old), []byte(tt.new), 1))
			if !strings.Contains(name, "page-content") {
				page.CRC32C = crc32.Checksum(body, castagnoli)
			}
			got, err := sealList.decode(testLog, page, body)
			fixture.WantErr(t, err, fence.ErrCorrupt, tt.says)
			fixture.WantErr(t, err, fence.ErrCorrupt, page.Key)
			if got != nil {
				t.Error("it returns what it refuses")
			}
		})
	}
	body, page, _ := pageOfSeals(t)
	for says, future := range map[string]string{"says format 2": `"format": 2`, "requires": `"format": 1,"requires": ["tiers"]`} {
		_, err := sealList.decode(testLog, page, document.Sum(page.Key, bytes.Replace(body, []byte(`"format": 1`), []byte(future), 1)))
		fixture.WantErr(t, err, fence.ErrFormat, says)
	}
}

// guard:elements.
func TestPageMemory(t *testing.T) {
	const size = 256 << 10
	body := document.Sum(testPage(1), []byte(`{"format":1,"entries":[`+strings.Repeat("{},", size/3)+`{}]}`))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := segmentList.decode(testLog, Page[uint64]{Key: testPage(1), Count: size/3 + 1, Size: int64(len(body))}, body)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, fence.ErrCorrupt) || used > 4*size {
		t.Errorf("%d bytes for %d, %v", used, len(body), err)
	}
}

// sealed makes a log of many epochs, so that there is a page of seals.
func sealed(t testing.TB, st store.Store, epochs int) *Manifest {
	t.Helper()
	m, err := testUpdater(t, st, layout.Compactor, 1).Update(context.Background(), func(m *Change) error {
		var seals []Seal
		for e := range fence.Epoch(epochs) {
			seals = append(seals, Seal{Position: fence.Position{Epoch: 2 * e, Seq: 1}, Next: 2*e + 2, Nonce: fence.ID{byte(e), byte(e >> 8)}})
		}
		return m.Fold(m.Floor, point(fence.Epoch(2*epochs), 1, 0), seals, nil, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestSealsStayKnown, however many there are: a crash loop cannot fill a manifest.
func TestSealsStayKnown(t *testing.T) {
	st, _ := fixture.Faults(nil)
	const epochs = 3*pageEntries + 100
	m := sealed(t, st, epochs)
	if len(m.Seals) > MaxInline || len(m.SealPages) != 3 || len(encoded(t, m)) > 200<<10 {
		t.Errorf("%d seals and %d pages in %d bytes", len(m.Seals), len(m.SealPages), len(encoded(t, m)))
	}
	l := testOpen(st)
	for e := range fence.Epoch(2 * epochs) {
		s, ok, err := l.SealOf(t.Context(), m, e)
		if err != nil || ok == (e%2 == 1) || ok && (s.Position.Epoch != e || s.Nonce != fence.ID{byte(e / 2), byte(e / 2 >> 8)}) {
			t.Fatalf("the seal of epoch %d is %+v, %t, %v", e, s, ok, err)
		}
	}
	if _, ok, err := l.SealOf(t.Context(), m, 2*epochs); ok || err != nil {
		t.Errorf("the last epoch is sealed: %v", err)
	}
	// The pages were read once each, epoch after epoch.
	if n := st.Counts().Of(faultstore.Get, layout.ListPrefix); n != 3 {
		t.Errorf("%d GETs of pages", n)
	}
	n := 0
	for s, err := range l.Seals(t.Context(), m) {
		if err != nil || s.Position.Epoch != fence.Epoch(2*n) {
			t.Fatalf("seal %d is %+v, %v", n, s, err)
		}
		n++
	}
	if n != epochs {
		t.Errorf("%d seals", n)
	}
}

// TestPageLost: a page that is not there is damage, unless its manifest is so old
// that it may have been pruned.
//
// guard:page-gone. Without this check: a slow reader uses manifest 5; the prune mark rises to 6, and a
// page of manifest 5 is deleted; the reader reports damage in a sound log, instead of going on with the
// newest manifest.
func TestPageLost(t *testing.T) {
	st := memstore.New(nil)
	m := sealed(t, st, 2*MaxInline)
	key := m.SealPages[0].Key
	body, _, err := store.Read(t.Context(), st, key, &store.ReadOptions{Limit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	read := func() error {
		_, _, err := testOpen(st).SealOf(t.Context(), m, 2)
		for _, serr := range testOpen(st).Seals(t.Context(), m) {
			if serr == nil {
				t.Fatal("it goes on")
			}
			if err == nil || serr.Error() != err.Error() {
				t.Errorf("%v and %v", err, serr)
			}
		}
		return err
	}
	for name, damaged := range map[string][]byte{
		"short": body[:len(body)/2], "long": append(bytes.Clone(body), ' '), "empty": []byte(" "), "rubbish": bytes.Repeat([]byte("x"), len(body)),
	} {
		fixture.Put(t, st, key, damaged)
		if err := read(); !errors.Is(err, fence.ErrCorrupt) || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := st.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	err = read()
	fixture.WantErr(t, err, fence.ErrCorrupt, key)
	fixture.WantErr(t, err, fence.ErrCorrupt, "manifest 1 names it")
	fixture.WantErr(t, err, fence.ErrCorrupt, "fencepost verify")

	// guard:page-gone.
	u := testUpdater(t, st, layout.Compactor, 2)
	for mark := range uint64(2) {
		if _, err := u.Update(t.Context(), func(m *Change) error { m.PruneMark = mark; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	err = read()
	fixture.WantErr(t, err, ErrPruned, key)
	fixture.WantErr(t, err, ErrPruned, "go on with the newest, which is 3")
	if errors.Is(err, fence.ErrCorrupt) {
		t.Error(err)
	}
}

// TestPageErrors passes on what is no answer.
func TestPageErrors(t *testing.T) {
	st, _ := fixture.Faults(nil)
	m := sealed(t, st, 2*MaxInline)
	st.SetHook(faultstore.Script(faultstore.Rule{Prefix: layout.ListPrefix, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
	if _, _, err := testOpen(st).SealOf(t.Context(), m, 2); !errors.Is(err, store.ErrDenied) {
		t.Error(err)
	}
	if n := st.OpenBodies(); n != 0 {
		t.Errorf("%d bodies are open", n)
	}
}

func TestPageCache(t *testing.T) {
	var c pageCache
	for i := range 2 * pagesCached {
		c.put(fmt.Sprint(i), i)
		if _, ok := c.get("0"); !ok {
			t.Fatalf("what is in use is forgotten after %d", i)
		}
	}
	if len(c.recent) != pagesCached {
		t.Errorf("it holds %d", len(c.recent))
	}
	for i := range 2 * pagesCached {
		v, ok := c.get(fmt.Sprint(i))
		if recent := i == 0 || i > pagesCached; ok != recent || ok && v != i {
			t.Errorf("%d is %v, %t", i, v, ok)
		}
	}
	c.put("15", "again")
	if v, _ := c.get("15"); v != "again" || len(c.recent) != pagesCached {
		t.Errorf("%v of %d", v, len(c.recent))
	}
}
