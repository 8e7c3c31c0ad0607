package frame

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

func TestRoundTrip(t *testing.T) {
	r := testRand(t)
	var b Builder // reused: what an earlier frame left behind must not show
	codecs := map[Codec]int{}
	for range 2000 {
		b.Reset()
		records := randomRecords(r)
		for _, rec := range records {
			b.Add([]byte(rec))
		}
		var cursor []byte
		if r.IntN(2) == 0 {
			cursor = bytes.Repeat([]byte{'c'}, r.IntN(100))
			b.SetCursor(cursor)
		}
		h := testHeader()
		h.Time = time.Unix(r.Int64N(1<<32), r.Int64N(1e9)).In(time.FixedZone("", 3600)) // nanoseconds, local time
		h.Offset, h.Prev = r.Uint64()>>1, r.Uint32()
		h.Position = fence.Position{Epoch: fence.Epoch(1 + r.Uint64()>>1), Seq: 1 + r.Uint64()>>1}
		when := h.Time
		frame := b.Finish(&h, Codec(r.IntN(2)))
		if late := when.Sub(h.Time); late < 0 || late >= time.Microsecond {
			t.Fatalf("%v became %v", when, h.Time)
		}
		codecs[h.Codec]++

		f, err := Decode(frame, fence.DefaultLimits())
		if err != nil {
			t.Fatalf("%d records, %d bytes, codec %d: %v", len(records), b.Size(), h.Codec, err)
		}
		if f.Header != h {
			t.Fatalf("header is\n%+v, want\n%+v", f.Header, h)
		}
		if h.HasCursor != (cursor != nil) || !bytes.Equal(f.Cursor, cursor) {
			t.Fatalf("cursor is %q, want %q", f.Cursor, cursor)
		}
		if f.PayloadLen() != b.Size() || h.BodyLen() != int64(len(frame)-HeaderSize) {
			t.Fatalf("lengths: payload %d of %d, body %d of %d", f.PayloadLen(), b.Size(), h.BodyLen(), len(frame)-HeaderSize)
		}
		next := h.Offset
		for offset, rec := range f.All() {
			if i := offset - h.Offset; offset != next || string(rec) != records[i] {
				t.Fatalf("record %d is %q at offset %d", i, rec, offset)
			}
			next++
		}
		if next != h.Offset+uint64(len(records)) {
			t.Fatalf("%d records of %d", next-h.Offset, len(records))
		}
	}
	if codecs[Plain] == 0 || codecs[Zstd] == 0 {
		t.Errorf("codecs used: %v", codecs)
	}
}

func TestAllStopsWhenAsked(t *testing.T) {
	b, _ := build(testHeader(), Plain, nil, "a", "b", "c")
	f, err := Decode(b, fence.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for offset := range f.All() {
		got = append(got, offset)
		if len(got) == 2 {
			break
		}
	}
	if !slices.Equal(got, []uint64{1000, 1001}) {
		t.Error(got)
	}
}

// Appending to a slice that a frame gave out must not write into the next one.
func TestSlicesOfAFrameAreClipped(t *testing.T) {
	b, _ := build(testHeader(), Plain, []byte("cursor"), "one", "two")
	b = append(b, "spare"...)
	f, err := Decode(b[:len(b)-5], fence.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range f.All() {
		_ = append(rec, "XXXX"...)
	}
	_ = append(f.Cursor, "XXXX"...)
	if got := recordsOf(f); !slices.Equal(got, []string{"one", "two"}) || string(f.Cursor) != "cursor" || !bytes.HasSuffix(b, []byte("spare")) {
		t.Errorf("records %q, cursor %q, behind %q", got, f.Cursor, b[len(b)-5:])
	}
}

func TestEveryBitFlipIsRefused(t *testing.T) {
	for _, name := range goldenFiles {
		b := readHex(t, name)
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				f, err := Decode(b, fence.DefaultLimits())
				fixture.WantErr(t, err, fence.ErrCorrupt, "")
				if f != nil {
					t.Fatalf("%s: byte %d, bit %d: a frame beside the error", name, i, bit)
				}
				b[i] ^= 1 << bit
			}
		}
		if _, err := Decode(b, fence.DefaultLimits()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEveryTruncationIsRefused(t *testing.T) {
	for _, name := range goldenFiles {
		b := readHex(t, name)
		for n := range b {
			_, err := Decode(b[:n], fence.DefaultLimits())
			fixture.WantErr(t, err, fence.ErrCorrupt, "")
		}
		_, err := Decode(append(b, 0), fence.DefaultLimits())
		fixture.WantErr(t, err, fence.ErrCorrupt, "the header says")
	}
}

// TestDecodeErrors has a row for every reason to refuse what a good header
// announces.
func TestDecodeErrors(t *testing.T) {
	damaged := readHex(t, "data.hex")
	damaged[HeaderSize] ^= 1
	good := readHex(t, "data-cursor.hex")
	tests := []struct {
		name   string
		b      []byte
		limits fence.Limits
		kind   error
		text   string
	}{
		{"body too short", good[:len(good)-1], fence.DefaultLimits(), fence.ErrCorrupt, "the body has 11 bytes, the header says 12"},
		{"body too long", append(bytes.Clone(good), 0), fence.DefaultLimits(), fence.ErrCorrupt, "the body has 13 bytes, the header says 12"},
		{"body checksum", damaged, fence.DefaultLimits(), fence.ErrCorrupt, "body checksum is"},
		{"object limit", good, fence.Limits{Object: 1, Record: 1, Cursor: 10}, fence.ErrLimit, "a payload of 2 bytes; the log allows 1"},
		{"record limit", good, fence.Limits{Object: 2, Record: 0, Cursor: 10}, fence.ErrLimit, "a record of 1 bytes; the log allows 0"},
		{"cursor limit", good, fence.Limits{Object: 2, Record: 1, Cursor: 9}, fence.ErrLimit, "a cursor of 10 bytes; the log allows 9"},
		{"long record", raw(Plain, 1, 2, []byte{2, 'x'}), fence.DefaultLimits(), fence.ErrCorrupt, "record 0 of 1 reaches past the payload"},
		{"second record missing", raw(Plain, 2, 2, []byte{1, 'x'}), fence.DefaultLimits(), fence.ErrCorrupt, "record 1 of 2 reaches past the payload"},
		{"unfinished length", raw(Plain, 1, 2, []byte{0x80, 0x80}), fence.DefaultLimits(), fence.ErrCorrupt, "reaches past the payload"},
		{"length of 70 bits", raw(Plain, 1, 11, append(bytes.Repeat([]byte{0xff}, 10), 1)), fence.DefaultLimits(), fence.ErrCorrupt, "reaches past the payload"},
		{"length of 64 bits", raw(Plain, 1, 10, append(bytes.Repeat([]byte{0xff}, 9), 1)), fence.DefaultLimits(), fence.ErrCorrupt, "reaches past the payload"},
		{"bytes after", raw(Plain, 1, 3, []byte{1, 'x', 'y'}), fence.DefaultLimits(), fence.ErrCorrupt, "1 bytes after the last record"},
		{"payload without records", raw(Plain, 0, 1, []byte{0}), fence.DefaultLimits(), fence.ErrCorrupt, "1 bytes after the last record"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := Decode(tt.b, tt.limits)
			fixture.WantErr(t, err, tt.kind, tt.text)
			if f != nil {
				t.Error("a frame beside the error")
			}
		})
	}
	if _, err := Decode(good, fence.Limits{Object: 2, Record: 1, Cursor: 10}); err != nil {
		t.Errorf("at the limits: %v", err)
	}
}

// A plain frame is read where it lies.
func TestDecodePlainDoesNotCopy(t *testing.T) {
	b, _ := build(testHeader(), Plain, nil, strings.Repeat("x", 1<<20))
	if n := test.Allocated(func() { _, _ = Decode(b, fence.DefaultLimits()) }); n > 64<<10 {
		t.Errorf("%d bytes allocated", n)
	}
}

func TestRecordSize(t *testing.T) {
	var b Builder
	for _, n := range []int{0, 1, 2, 126, 127, 128, 129, 255, 256, 16382, 16383, 16384, 16385, 1<<21 - 1, 1 << 21} {
		before := b.Size()
		b.Add(make([]byte, n))
		if grown := b.Size() - before; grown != RecordSize(n) {
			t.Errorf("RecordSize(%d) is %d, the payload grew by %d", n, RecordSize(n), grown)
		}
	}
}

func TestLimitsOfOne(t *testing.T) {
	l := fence.Limits{Object: 100, Record: 10, Cursor: 5}
	if err := CheckRecord(l, 10); err != nil {
		t.Error(err)
	}
	fixture.WantErr(t, CheckRecord(l, 11), fence.ErrLimit, "a record of 11 bytes; the log allows 10")
	if err := CheckCursor(l, 5); err != nil {
		t.Error(err)
	}
	fixture.WantErr(t, CheckCursor(l, 6), fence.ErrLimit, "a cursor of 6 bytes; the log allows 5")
	if n := MaxFrame(l); n != HeaderSize+100+5 {
		t.Error(n)
	}
}

// The longest frame that the limits allow has the length that MaxFrame says.
func TestMaxFrame(t *testing.T) {
	l := fence.Limits{Object: int64(RecordSize(300)), Record: 300, Cursor: 7}
	b, _ := build(testHeader(), Plain, make([]byte, 7), string(make([]byte, 300)))
	if _, err := Decode(b, l); err != nil || int64(len(b)) != MaxFrame(l) {
		t.Errorf("%d bytes of %d, %v", len(b), MaxFrame(l), err)
	}
}

// TestSum is the CRC-32C of the whole, whatever its length.
func TestSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(frame []byte) {
		t.Helper()
		if got, want := Sum(frame), crc32.Checksum(frame, castagnoli); got != want {
			t.Errorf("a frame of %d bytes: %08x, want %08x", len(frame), got, want)
		}
	}
	for n := range 300 {
		for _, codec := range []Codec{Plain, Zstd} {
			var b Builder
			for range n % 5 {
				b.Add(bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(1<<(n%17)+1)))
			}
			if n%3 == 0 {
				b.SetCursor([]byte("cursor")[:n%7])
			}
			h := testHeader()
			check(b.Finish(&h, codec))
		}
	}
	h := Header{Position: fence.Position{Epoch: 1, Seq: 2}, Time: time.Unix(1, 0)}
	check(EncodeSeal(&h, 2))
}

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
