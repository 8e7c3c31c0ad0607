package verify_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/segment"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/verify"
)

// This file damages what is reached only through something else.

// finds runs verify and wants problems with exactly these keys, each of which says something.
func finds(t *testing.T, l *logtest.Log, what, says string, want ...string) {
	t.Helper()
	r := run(t, l.Mem)
	var got []string
	for _, p := range r.Problems {
		got = append(got, p.Key)
		if !strings.Contains(p.What, says) {
			t.Errorf("%s: %v does not say %q", what, p, says)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: problems with %q, want %q: %v", what, got, want, r.Problems)
	}
}

// harms are the three ways in which an object is damaged.
var harms = map[string]func(l *logtest.Log, key string){
	"removed": del,
	"cut":     func(l *logtest.Log, key string) { l.Put(key, l.Body(key)[:len(l.Body(key))/2]) },
	"flipped": func(l *logtest.Log, key string) { flip(l, key, len(l.Body(key))/2) },
}

// A page of files is read by nothing but a look at the table. If it is lost, so are the names
// of most live files.
func TestPagesOfFiles(t *testing.T) {
	l := newLog(t)
	files := table(l, 1300)
	compact(l)
	m := l.Newest()
	if len(m.FilePages) == 0 {
		t.Fatalf("%d files are in the manifest", len(m.Table.Files))
	}
	table(l, 3, files[700])
	pin, err := l.State.Pin(t.Context(), &state.PinOptions{Name: "backup"})
	if err != nil {
		t.Fatal(err)
	}
	if r := run(t, l.Mem); !r.OK() || r.Files != 1302 {
		t.Fatalf("%d files: %v", r.Files, r.Problems)
	}
	for name, harm := range harms {
		for _, page := range m.FilePages {
			c := l.Fork(t, nil)
			harm(c, page.Key)
			r := run(t, c.Mem)
			if r.OK() || !slices.ContainsFunc(r.Problems, func(p verify.Finding) bool { return p.Key == page.Key }) {
				t.Errorf("%s, page %s: %v", name, page.Key, r.Problems)
			}
		}
	}
	if pin.Version() == 0 {
		t.Error("nothing is pinned")
	}
}

// What a merge has replaced stays for the grace period, and older versions that are promised
// name it: a backup may pin one.
func TestReplaced(t *testing.T) {
	l := logtest.New(t, logtest.WithGrace(time.Hour), nil)
	files := table(l, 2)
	c := compactorOf(l, compactor.Options{FanIn: 2, SegmentBytes: 4096})
	for range 3 {
		if _, err := c.Once(context.Background()); err != nil {
			t.Fatal(err)
		}
		l.Lead(2)
	}
	table(l, 1, files[0])
	if _, err := c.Once(context.Background()); err != nil {
		t.Fatal(err)
	}
	m := l.Newest()
	kinds := map[string]bool{}
	for _, d := range m.Dropped {
		kinds[layout.KindOf(d.Key)] = true
		for name, harm := range harms {
			f := l.Fork(t, nil)
			harm(f, d.Key)
			finds(t, f, name, "still promised", d.Key)
		}
	}
	if !kinds[layout.KindSegment] || !kinds[layout.KindFile] {
		t.Errorf("dropped are %+v", m.Dropped)
	}
	finds(t, l, "whole", "")
}

// docs/format.md says that a seal has 128 bytes, and nothing else.
func TestSealWithMore(t *testing.T) {
	for _, p := range []struct{ epoch, seq uint64 }{{0, 1}, {1, 4}, {3, 7}} { // before the floor, and on the chain
		for _, more := range []int{1, 128} {
			l := sample(t)
			key := layout.DataKey(logtest.At(fence.Epoch(p.epoch), p.seq))
			l.Put(key, append(bytes.Clone(l.Body(key)), make([]byte, more)...))
			finds(t, l, "a longer seal", "bytes", key)
		}
	}
}

// A flipped bit in a file that has its size still.
func TestContentOfFiles(t *testing.T) {
	l, live := tables(t)
	flip(l, live[0], 1)
	finds(t, l, "flipped", "checksum of the file", live[0])
	if r, err := verify.Run(t.Context(), l.Mem, &verify.Options{NoContent: true}); err != nil || !r.OK() {
		t.Errorf("without content: %v, %v", r.Problems, err)
	}
}

// One damaged pin does not hide what another one holds.
func TestDamagedPin(t *testing.T) {
	l := newHeldLog(t, &state.PinOptions{Name: "backup"})
	bad := layout.PinKey("00000000-0000-4000-8000-000000000001")
	l.Put(bad, l.Body(l.pin.Description().Key)) // under another name
	del(l.Log, l.segment)
	finds(t, l.Log, "both", "", bad, l.segment)
}

// A pin tells that the newest manifests are gone.
func TestPinnedVersionLost(t *testing.T) {
	l := sample(t)
	pin, err := l.State.Pin(t.Context(), &state.PinOptions{Name: "backup"})
	if err != nil {
		t.Fatal(err)
	}
	l.Remove(layout.ManifestKey(pin.Version()))
	finds(t, l, "the newest manifest is gone", "newer ones are missing", pin.Description().Key)
}

// Locks: each is checked, and one that is missing is noted where the manifest knows of a later
// epoch.
func TestLocks(t *testing.T) {
	l := sample(t)
	lock := func(n uint64) string { return "lock/" + layout.FormatNumber(n) + ".json" }
	l.Put(lock(2), document.Sum(lock(2), bytes.Replace(l.Body(lock(1)), []byte(`"epoch": 1,`), []byte(`"epoch": 2,`), 1)))
	finds(t, l, "two locks", "")
	if r := run(t, l.Mem); !slices.ContainsFunc(r.Notes, func(f verify.Finding) bool {
		return f.Key == "lock/" && strings.Contains(f.What, "epoch 4 has written")
	}) {
		t.Errorf("no note: %v", r.Notes)
	}
	flip(l, lock(1), 30)
	finds(t, l, "an old lock", "old lock", lock(1))
}

// The blocks of a segment are linked by their checksums. One of them was replaced by another
// sound one, with its records.
func TestBlocksOfSegments(t *testing.T) {
	l := newLog(t)
	w := l.Open(nil)
	for i := range 3 {
		if _, err := w.Append(t.Context(), [][]byte{bytes.Repeat([]byte{'a' + byte(i)}, 900<<10)}); err != nil {
			t.Fatal(err)
		}
	}
	l.Close(w)
	if _, err := compactorOf(l, compactor.Options{NoCompress: true}).Once(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := l.Newest().Segments[0]
	body := bytes.Clone(l.Body(s.Key))
	blocks, err := segment.DecodeIndex(body[s.Size-s.Index:], s.Size, l.Format.Log, s.First, s.End)
	if err != nil || len(blocks) != 3 {
		t.Fatalf("%d blocks, %v", len(blocks), err)
	}
	b := body[blocks[1].At : blocks[1].At+blocks[1].Len]
	h, err := frame.DecodeHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	var build frame.Builder
	build.Add(bytes.Repeat([]byte("x"), 900<<10))
	h.Nonce[0] ^= 1
	copy(b, build.Finish(&h, frame.Plain))
	l.Put(s.Key, body)
	finds(t, l, "another block", "the block with record 2 follows", s.Key)
}

// A scrub reads a part of the log each day. In all its parts together it finds what a whole
// check finds, and each part finds what is missing.
func TestParts(t *testing.T) {
	l, live := tables(t)
	compact(l)
	seg := l.Newest().Segments
	seal := slot(0, 1)
	all := append(slices.Clone(live), seal)
	for _, s := range seg {
		all = append(all, s.Key)
	}
	const parts = 5
	part := func(l *logtest.Log, k int) *verify.Report {
		r, err := verify.Run(t.Context(), l.Mem, &verify.Options{Part: k, Parts: parts})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, key := range all {
		c := l.Fork(t, nil)
		flip(c, key, len(c.Body(key))-1)
		found := 0
		for k := range parts {
			if r := part(c, k+1); !r.OK() {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s is flipped, and %d of %d parts find it", key, found, parts)
		}
	}
	c := l.Fork(t, nil)
	c.Remove(seg[0].Key)
	c.Put(seg[1].Key, c.Body(seg[1].Key)[1:])
	c.Remove(live[0])
	bytes := int64(0)
	for k := range parts {
		if r := part(c, k+1); len(r.Problems) != 3 {
			t.Errorf("part %d: %v", k+1, r.Problems)
		}
		bytes += part(l, k+1).Bytes
	}
	if whole := run(t, l.Mem).Bytes; bytes != whole {
		t.Errorf("all parts together read %d bytes, a whole check %d", bytes, whole)
	}
	// Seals keep zombies out. Each part sees whether all are there.
	for name, harm := range map[string]func(l *logtest.Log){
		"removed": func(l *logtest.Log) { l.Remove(seal) }, "cut": func(l *logtest.Log) { l.Put(seal, l.Body(seal)[:127]) },
		"longer": func(l *logtest.Log) { l.Put(seal, slices.Concat(l.Body(seal), []byte{0})) },
	} {
		c := l.Fork(t, nil)
		harm(c)
		for k := range parts {
			if r := part(c, k+1); len(r.Problems) != 1 || r.Problems[0].Key != seal {
				t.Errorf("part %d, a seal is %s: %v", k+1, name, r.Problems)
			}
		}
	}
	for _, o := range []verify.Options{{Part: 1}, {Parts: 3}, {Part: 4, Parts: 3}, {Part: -1, Parts: 3}} {
		if err := o.Validate(); !errors.Is(err, verify.ErrOptions) {
			t.Errorf("%d of %d: %v", o.Part, o.Parts, err)
		}
	}
}

// Repair creates seals again that the manifest names, and deletes old locks. It says so, and
// with DryRun only what it would do.
func TestRepair(t *testing.T) {
	repair := func(l *logtest.Log, dry bool) *verify.Report {
		r, err := verify.Run(t.Context(), l.Mem, &verify.Options{Repair: true, DryRun: dry})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	base := sample(t)
	lock := func(n uint64) string { return "lock/" + layout.FormatNumber(n) + ".json" }
	base.Put(lock(2), document.Sum(lock(2), bytes.Replace(base.Body(lock(1)), []byte(`"epoch": 1,`), []byte(`"epoch": 2,`), 1)))
	for name, c := range map[string]struct {
		key  string
		harm func(l *logtest.Log, key string)
	}{
		"a seal is missing": {slot(1, 4), del},
		"a seal is empty":   {slot(1, 4), func(l *logtest.Log, key string) { l.Put(key, nil) }},
		"a seal is flipped": {slot(0, 1), func(l *logtest.Log, key string) { flip(l, key, 60) }},
		"a seal is cut":     {slot(2, 4), func(l *logtest.Log, key string) { l.Put(key, l.Body(key)[:127]) }},
		"a seal is longer":  {slot(2, 4), func(l *logtest.Log, key string) { l.Put(key, append(bytes.Clone(l.Body(key)), 0)) }},
		"an old lock":       {lock(1), func(l *logtest.Log, key string) { flip(l, key, 9) }},
	} {
		l := base.Fork(t, nil)
		c.harm(l, c.key)
		before := l.Objects()
		for _, r := range []*verify.Report{run(t, l.Mem), repair(l, true)} {
			if len(r.Problems) != 1 || r.OK() || r.Problems[0].Repair == "" || r.Problems[0].Repaired {
				t.Errorf("%s, dry: %v", name, r.Problems)
			}
		}
		if after := l.Objects(); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("%s: the dry run changes the log", name)
		}
		if r := repair(l, false); len(r.Problems) != 1 || !r.OK() || !r.Problems[0].Repaired || r.Problems[0].Key != c.key {
			t.Errorf("%s: %v", name, r.Problems)
		}
		if r := run(t, l.Mem); len(r.Problems) > 0 {
			t.Errorf("%s, repaired: %v", name, r.Problems)
		}
	}
	if err := (&verify.Options{DryRun: true}).Validate(); !errors.Is(err, verify.ErrOptions) {
		t.Error(err)
	}
}

// What a zombie has written into the place of a lost seal is sound. It is left, and so is everything
// else that takes a guess.
//
// guard:reseal-sound. Without this check: a lifecycle rule deletes the seal of slot 1/4; zombie Z, the
// leader of epoch 1, wakes up, creates its next object in slot 1/4, and acknowledges its records; the
// repair overwrites this object; nobody learns any more which records Z has acknowledged.
func TestRepairLeaves(t *testing.T) {
	for name, harm := range map[string]func(l *logtest.Log) (key string){
		"a zombie's data": func(l *logtest.Log) string {
			l.Put(slot(1, 4), l.Data(frame.Point{Position: logtest.At(1, 4), Offset: 3}, "x"))
			return slot(1, 4)
		},
		"another seal":       func(l *logtest.Log) string { l.Put(slot(1, 4), l.Seal(logtest.At(1, 4), 2)); return slot(1, 4) },
		"a record":           func(l *logtest.Log) string { flip(l, slot(4, 1), 130); return slot(4, 1) },
		"a seal of the tail": func(l *logtest.Log) string { del(l, slot(3, 7)); return slot(3, 7) },
	} {
		l := sample(t)
		key := harm(l)
		before := l.Objects()
		r, err := verify.Run(t.Context(), l.Mem, &verify.Options{Repair: true})
		if err != nil || r.OK() || len(r.Problems) != 1 || r.Problems[0].Key != key || r.Problems[0].Repaired {
			t.Errorf("%s: %v, %v", name, r.Problems, err)
		}
		if after := l.Objects(); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("%s: the log was changed", name)
		}
	}
}

// A page that is lost or damaged is written again, if an older version of the manifest has its
// entries. Its bytes are those that the manifest names.
func TestRepairPage(t *testing.T) {
	l := logtest.New(t, logtest.WithGrace(time.Hour), nil)
	epochs := func(from, to fence.Epoch) {
		for e := from; e < to; e++ {
			p := logtest.At(e, 1)
			l.Put(layout.DataKey(p), l.Seal(p, e+1))
		}
		compact(l)
	}
	epochs(0, state.MaxInline)
	epochs(state.MaxInline, state.MaxInline+40)
	m := l.Newest()
	if len(m.SealPages) != 1 {
		t.Fatalf("%d pages of seals", len(m.SealPages))
	}
	page := m.SealPages[0].Key
	for name, harm := range harms {
		c := l.Fork(t, nil)
		harm(c, page)
		if r := run(t, c.Mem); r.OK() || r.Problems[0].Key != page || r.Problems[0].Repair == "" {
			t.Errorf("%s: %v", name, r.Problems)
		}
		r, err := verify.Run(t.Context(), c.Mem, &verify.Options{Repair: true})
		if err != nil || !r.OK() || len(r.Problems) != 1 || !r.Problems[0].Repaired {
			t.Errorf("%s: %v, %v", name, r.Problems, err)
		}
		if !bytes.Equal(c.Body(page), l.Body(page)) {
			t.Errorf("%s: the page is not what it was", name)
		}
		finds(t, c, name+", repaired", "")
	}
	// guard:rebuild-same. Nobody has its entries any more, or others: it is left.
	for name, change := range map[string]func(c *logtest.Log, v uint64, key string){
		"pruned": func(c *logtest.Log, v uint64, key string) {
			if v < m.Version {
				c.Remove(key)
			}
		},
		"other entries": func(c *logtest.Log, v uint64, key string) {
			b := bytes.Clone(c.Body(key))
			if i := bytes.Index(b, []byte(`"next":9,`)); i >= 0 && v < m.Version {
				digit := &b[i+len(`"next":9,"nonce":"`)]
				*digit = '0' + (*digit+1)%2
				c.Put(key, document.Sum(key, b))
			}
		},
	} {
		c := l.Fork(t, nil)
		del(c, page)
		for _, key := range c.Keys(layout.ManifestPrefix) {
			v, _ := layout.ParseManifestKey(key)
			change(c, v, key)
		}
		r, err := verify.Run(t.Context(), c.Mem, &verify.Options{Repair: true})
		if err != nil || r.OK() || c.Has(page) {
			t.Errorf("%s: %v, %v", name, r.Problems, err)
		}
	}
}

// A page of files that one pass has folded: no older version has its entries inline. It is made
// again from the older version and the log after it, while the objects of the log are still there.
// In a small log also a page of what was dropped, and one of the files removed.
func TestRepairPageFromChain(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		l := logtest.New(t, logtest.WithGrace(time.Hour), nil)
		if !pinned {
			table(l, 3)
			compact(l)
		}
		files := table(l, 1300)
		if pinned {
			if _, err := l.State.Pin(t.Context(), &state.PinOptions{Name: "backup"}); err != nil {
				t.Fatal(err)
			}
		}
		compact(l)
		repairs(t, l, l.Newest().FilePages[0].Key)
		table(l, 2, files[:1100]...)
		compact(l)
		m := l.Newest()
		for _, p := range m.DroppedPages {
			repairs(t, l, p.Key)
		}
		for _, p := range slices.Concat(m.FilePages, m.RemovedPages) {
			repairs(t, l, p.Key)
		}
		if len(m.DroppedPages) == 0 || len(m.RemovedPages)+len(m.FilePages) == 0 {
			t.Error("a list has no page")
		}
		// Without the log objects nothing can be made again.
		c := l.Fork(t, nil)
		for _, key := range c.Keys(layout.DataPrefix) {
			if p, _ := layout.ParseDataKey(key); m.Past(p) && len(c.Body(key)) > frame.HeaderSize {
				c.Remove(key)
			}
		}
		page := m.DroppedPages[0].Key
		del(c, page)
		if r, err := verify.Run(t.Context(), c.Mem, &verify.Options{Repair: true}); err != nil || r.OK() || c.Has(page) {
			t.Errorf("pruned: %v, %v", r.Problems, err)
		}
	}
}

// repairs removes a page of a copy of l, and wants it back.
func repairs(t *testing.T, l *logtest.Log, page string) {
	t.Helper()
	c := l.Fork(t, nil)
	del(c, page)
	r, err := verify.Run(t.Context(), c.Mem, &verify.Options{Repair: true})
	if err != nil || !r.OK() || len(r.Problems) != 1 || !r.Problems[0].Repaired {
		t.Errorf("%s: %v, %v", page, r.Problems, err)
		return
	}
	if !bytes.Equal(c.Body(page), l.Body(page)) {
		t.Errorf("%s is not what it was", page)
	}
	finds(t, c, "repaired", "")
}
