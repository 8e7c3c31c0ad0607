package state

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/memstore"
)

// What decoding a document takes: some memory for each byte, and a constant.
const (
	decodeFactor   = 256
	decodeConstant = 256 << 10
)

func known(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat)
}

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
		var m *Manifest
		var err error
		body := document.Sum(layout.ManifestKey(42), b)
		test.Affords(t, len(b), decodeFactor, decodeConstant, func() { m, err = decode(layout.ManifestKey(42), body, testFormat()) })
		if err != nil {
			if !known(err) || m != nil {
				t.Fatalf("%v, %v", m, err)
			}
			return
		}
		if m.Roles == nil {
			m.Roles = map[layout.Role]RoleState{} // as it is written
		}
		l := testOpen(memstore.New(nil))
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
		got, err := decode(layout.ManifestKey(42), again, testFormat())
		if err != nil || fixture.JSON(t, got) != fixture.JSON(t, m) {
			t.Fatalf("%s became %s: %v", fixture.JSON(t, m), again, err)
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
		var e *manifest.Edit
		var err error
		test.Affords(t, len(b), decodeFactor, decodeConstant, func() { e, err = DecodeEdit(b) })
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
		if err != nil || fixture.JSON(t, got) != fixture.JSON(t, e) {
			t.Fatalf("%s became %s: %v", fixture.JSON(t, e), again, err)
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
		if err := m.check(layout.ManifestKey(43), testFormat()); err != nil {
			t.Fatalf("%s makes %v", fixture.JSON(t, e), err)
		}
	})
}

// A page that is accepted is what the manifest says.
func FuzzDecodePage(f *testing.F) {
	body, _, _ := pageOfSeals(f)
	f.Add(body, uint64(0), uint64(4), 3)
	f.Add([]byte(`{"format":1,"entries":[null]}`), uint64(0), uint64(0), 1)
	empty, err := json.Marshal(pageDoc[Seal]{document.Format, testLog, testPage(4), sealList.name, nil})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(empty, uint64(0), uint64(0), 0)
	f.Fuzz(func(t *testing.T, body []byte, from, to uint64, count int) {
		body = document.Sum(testPage(4), body)
		page := Page[uint64]{Key: testPage(4), Count: count, Size: int64(len(body)), CRC32C: crc32.Checksum(body, castagnoli), From: from, To: to}
		var seals []Seal
		var err error
		test.Affords(t, len(body), decodeFactor, decodeConstant, func() { seals, err = sealList.decode(testLog, page, body) })
		if err != nil {
			if !known(err) || seals != nil {
				t.Fatalf("%v, %v", seals, err)
			}
			return
		}
		again, same, err := sealList.encode(testLog, page.Key, seals)
		same.Size, same.CRC32C = page.Size, page.CRC32C
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
		var err error
		body := document.Sum("pin/x", b)
		test.Affords(t, len(b), decodeFactor, decodeConstant, func() { _, err = decodePin("pin/x", body, testLog) })
		if err != nil && !known(err) {
			t.Fatal(err)
		}
	})
}

// What encode puts between lines changes nothing of what is said.
func FuzzLines(f *testing.F) {
	f.Add("a\"b\\", "{[,:]}")
	f.Fuzz(func(t *testing.T, role, hint string) {
		m := full()
		m.Roles[layout.Role(role)] = RoleState{Epoch: 1}
		m.Hint.Cursor = []byte(hint)
		m.Dropped[0].Key = role
		b, err := m.encode(1 << 30)
		if err != nil {
			t.Fatal(err)
		}
		if got := compacted(t, b); got != fixture.JSON(t, m) {
			t.Errorf("%s became %s", fixture.JSON(t, m), got)
		}
	})
}
