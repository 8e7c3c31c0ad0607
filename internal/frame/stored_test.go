package frame

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
)

// What is repacked holds the same records elsewhere, without the cursor, however it
// is stored; and damage is noticed without unpacking.
func TestRepack(t *testing.T) {
	for i, codec := range []Codec{Plain, Zstd, Plain, Zstd} {
		var b Builder
		records := [][]byte{bytes.Repeat([]byte("a"), 1000), {}, []byte("z")}
		for _, r := range records {
			b.Add(r)
		}
		var cursor []byte
		if i < 2 {
			cursor = []byte("somewhere")
			b.SetCursor(cursor)
		}
		old := Header{Log: fence.ID{1}, Nonce: fence.ID{2}, Position: fence.Position{Epoch: 3, Seq: 4}, Offset: 5, Prev: 6, Time: time.UnixMicro(7).UTC()}
		frame := slices.Clone(b.Finish(&old, codec))
		f, err := Decode(frame, fence.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		s, err := DecodeStored(frame, fence.DefaultLimits())
		if err != nil || s.Header != f.Header || !bytes.Equal(s.Cursor, cursor) || s.HasCursor != (cursor != nil) {
			t.Fatalf("%+v, %v; want %+v", s, err, f.Header)
		}
		for _, s := range []*Stored{s, f.Stored()} {
			h := Header{Log: fence.ID{1}, Nonce: fence.ID{9}, Position: fence.Position{Epoch: 3, Seq: 4}, Offset: 5, Prev: 10, Time: time.UnixMicro(11).UTC()}
			header, payload := s.Repack(&h)
			got, err := Decode(slices.Concat(header, payload), fence.DefaultLimits())
			if err != nil || got.Header != h || got.HasCursor || got.Cursor != nil || got.Codec != f.Codec || got.Prev != 10 {
				t.Fatalf("%+v, %v; want %+v", got, err, h)
			}
			n := 0
			for off, rec := range got.All() {
				if off != 5+uint64(n) || !bytes.Equal(rec, records[n]) {
					t.Errorf("record %d at %d is %q", n, off, rec)
				}
				n++
			}
			if n != len(records) {
				t.Errorf("%d records", n)
			}
		}
		for i := range frame {
			bad := slices.Clone(frame)
			bad[i] ^= 1
			if _, err := DecodeStored(bad, fence.DefaultLimits()); !errors.Is(err, fence.ErrCorrupt) && !errors.Is(err, fence.ErrFormat) {
				t.Errorf("byte %d is flipped: %v", i, err)
			}
		}
		for n := range frame {
			if _, err := DecodeStored(frame[:n], fence.DefaultLimits()); !errors.Is(err, fence.ErrCorrupt) {
				t.Errorf("cut to %d bytes: %v", n, err)
			}
		}
	}
}
