package frame

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/testkit/fixture"
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
	if n := allocated(func() { _, _ = Decode(b, fence.DefaultLimits()) }); n > 64<<10 {
		t.Errorf("%d bytes allocated", n)
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, codec := range []Codec{Plain, Zstd} {
		b.Run(codecName(codec), func(b *testing.B) {
			frame, h := build(testHeader(), codec, nil, benchRecords()...)
			if h.Codec != codec {
				b.Fatal("not compressible")
			}
			b.SetBytes(int64(h.rawLen))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Decode(frame, fence.DefaultLimits()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
