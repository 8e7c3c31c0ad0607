package manifest

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/store/memstore"
)

func known(err error) bool { return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrFormat) }

// A manifest that is accepted can be asked anything, updated, and written again.
func FuzzDecode(f *testing.F) {
	b, err := os.ReadFile("testdata/manifest.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(encoded(f, &Manifest{Format: 1, Log: testLog, Version: 42, Floor: frame.Start()}))
	f.Add([]byte(`{"format":1,"requires":["x"],"seals":[null],"segments":[{}]}`))
	f.Add(encoded(f, full()))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(Key(42), b, testFormat())
		if err != nil {
			if !known(err) || m != nil {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		if m.Roles == nil {
			m.Roles = map[Role]RoleState{} // as it is written
		}
		l := testOpen(memstore.New())
		if len(l.Lists(m)) != len(m.SegmentPages)+len(m.SealPages)+len(m.DroppedPages)+len(m.FilePages)+len(m.RemovedPages) {
			t.Fatalf("%q", l.Lists(m))
		}
		for _, s := range m.Segments {
			if s.First < m.Start {
				continue
			}
			if got, err := l.SegmentOf(t.Context(), m, s.First); err != nil || got.Key != s.Key {
				t.Fatalf("%+v is not found: %+v, %v", s, got, err)
			}
			if got, err := l.SegmentOf(t.Context(), m, s.End-1); err != nil || got.Key != s.Key {
				t.Fatalf("the end of %+v is not found: %+v, %v", s, got, err)
			}
		}
		for _, s := range m.Seals {
			if got, ok, err := l.SealOf(t.Context(), m, s.Position.Epoch); !ok || err != nil || got != s || !m.Past(s.Position) {
				t.Fatalf("%+v is not found: %+v, %v", s, got, err)
			}
		}
		if m.Tail().Before(m.Floor) || m.First() > m.Floor.Offset {
			t.Fatalf("tail %+v, first %d", m.Tail(), m.First())
		}
		again, err := m.clone().encode(1 << 30)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(Key(42), again, testFormat())
		if err != nil || asJSON(t, got) != asJSON(t, m) {
			t.Fatalf("%s became %s: %v", asJSON(t, m), again, err)
		}
	})
}

func FuzzDecodeFormat(f *testing.F) {
	b, err := os.ReadFile("testdata/format.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"log":"101112131415161718191a1b1c1d1e1f","limits":{"object":9,"record":8,"cursor":0,"manifest":262144}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeFormat(b)
		if err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		again, err := v.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeFormat(again)
		if err != nil || asJSON(t, got) != asJSON(t, v) {
			t.Fatalf("%s became %s: %v", asJSON(t, v), again, err)
		}
	})
}

// Only what we name ourselves is read as a name: a pruner deletes by it.
func FuzzKeys(f *testing.F) {
	f.Add(Key(7))
	f.Add(SegmentKey(Writer, 3, "00000000-0000-4000-8000-000000000001"))
	f.Add(testPage(1))
	f.Add(testFile(1, 1))
	f.Add(PinKey("00000000-0000-4000-8000-000000000001"))
	f.Fuzz(func(t *testing.T, key string) {
		if v, ok := ParseKey(key); ok && Key(v) != key {
			t.Errorf("%q is read as %d", key, v)
		}
		if role, epoch, ok := ParseSegmentKey(key); ok && SegmentKey(role, epoch, key[len(key)-36:]) != key {
			t.Errorf("%q is read as %s %d", key, role, epoch)
		}
		if role, epoch, ok := ParseListKey(key); ok && ListKey(role, epoch, key[len(key)-36:]) != key {
			t.Errorf("%q is read as %s %d", key, role, epoch)
		}
		if epoch, id, ext, ok := ParseFileKey(key); ok && (FileKey(epoch, id, ext) != key || strings.Contains(ext, "/")) {
			t.Errorf("%q is read as %d %q %q", key, epoch, id, ext)
		}
		if id, ok := ParsePinKey(key); ok && PinKey(id) != key {
			t.Errorf("%q is read as %q", key, id)
		}
	})
}

// An edit that is accepted can be encoded, and is the same again.
func FuzzDecodeEdit(f *testing.F) {
	b, err := os.ReadFile("testdata/edit.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"add":[null,{}],"remove":[""]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := DecodeEdit(b)
		if err != nil {
			if !known(err) || e != nil {
				t.Fatalf("%v, %v", e, err)
			}
			return
		}
		again, err := EncodeEdit(e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeEdit(again)
		if err != nil || asJSON(t, got) != asJSON(t, e) {
			t.Fatalf("%s became %s: %v", asJSON(t, e), again, err)
		}
		// Any manifest can be asked to apply it.
		m := full()
		m.Hint = nil
		if err := foldEdits(m, applied(4, e)); err != nil {
			if !known(err) {
				t.Fatal(err)
			}
			return
		}
		m.Version++
		if err := m.check(Key(43), testFormat()); err != nil {
			t.Fatalf("%s makes %v", asJSON(t, e), err)
		}
	})
}

// A page that is accepted is what the manifest says.
func FuzzDecodePage(f *testing.F) {
	body, _, _ := pageOfSeals(f)
	f.Add(body, uint64(0), uint64(4), 3)
	f.Add([]byte(`{"format":1,"entries":[null]}`), uint64(0), uint64(0), 1)
	f.Fuzz(func(t *testing.T, body []byte, from, to uint64, count int) {
		page := Page[uint64]{Key: testPage(4), Count: count, Size: int64(len(body)), From: from, To: to}
		seals, err := sealList.decode(testLog, page, body)
		if err != nil {
			if !known(err) || seals != nil {
				t.Fatalf("%v, %v", seals, err)
			}
			return
		}
		again, same, err := sealList.encode(testLog, page.Key, seals)
		same.Size = page.Size
		if err != nil || same != page {
			t.Fatalf("%+v became %+v in %s, %v", page, same, again, err)
		}
	})
}

func FuzzDecodePin(f *testing.F) {
	b, err := os.ReadFile("testdata/pin.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decodePin("pin/x", b, testLog); err != nil && !known(err) {
			t.Fatal(err)
		}
	})
}

// What encode puts between lines changes nothing of what is said.
func FuzzLines(f *testing.F) {
	f.Add("a\"b\\", "{[,:]}")
	f.Fuzz(func(t *testing.T, role, hint string) {
		m := full()
		m.Roles[Role(role)] = RoleState{Epoch: 1}
		m.Hint.Cursor = []byte(hint)
		m.Dropped[0].Key = role
		b, err := m.encode(1 << 30)
		if err != nil {
			t.Fatal(err)
		}
		if got := compacted(t, b); got != asJSON(t, m) {
			t.Errorf("%s became %s", asJSON(t, m), got)
		}
	})
}
