package frame

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/fencepost/fencepost/fence"
)

func codecName(c Codec) string { return map[Codec]string{Plain: "plain", Zstd: "zstd"}[c] }

func TestBuilderEmpty(t *testing.T) {
	var b Builder
	if b.Size() != 0 || b.Records() != 0 {
		t.Errorf("a new builder has %d bytes, %d records", b.Size(), b.Records())
	}
	for _, codec := range []Codec{Plain, Zstd} {
		h := testHeader()
		f, err := Decode(b.Finish(&h, codec), fence.DefaultLimits())
		if err != nil || f.Codec != Plain || f.Header.Records != 0 || f.HasCursor || f.PayloadLen() != 0 {
			t.Errorf("%+v, %v", f, err)
		}
	}
}

func TestBuilderReset(t *testing.T) {
	var b Builder
	b.Add([]byte("record"))
	b.SetCursor([]byte("cursor"))
	b.Reset()
	if b.Size() != 0 || b.Records() != 0 {
		t.Errorf("%d bytes, %d records after Reset", b.Size(), b.Records())
	}
	h := testHeader()
	f, err := Decode(b.Finish(&h, Plain), fence.DefaultLimits())
	if err != nil || f.Header.Records != 0 || f.HasCursor {
		t.Errorf("%+v, %v", f, err)
	}
}

// What was passed to the builder is the caller's again.
func TestBuilderCopies(t *testing.T) {
	var b Builder
	mine := []byte("mine")
	b.Add(mine)
	b.SetCursor(mine)
	copy(mine, "XXXX")
	h := testHeader()
	f, err := Decode(b.Finish(&h, Plain), fence.DefaultLimits())
	if err != nil || string(f.Cursor) != "mine" || recordsOf(f)[0] != "mine" {
		t.Errorf("cursor %q, records %q, %v", f.Cursor, recordsOf(f), err)
	}
}

func TestSetCursorReplaces(t *testing.T) {
	var b Builder
	b.SetCursor([]byte("a long first"))
	b.SetCursor([]byte("second"))
	h := testHeader()
	f, err := Decode(b.Finish(&h, Plain), fence.DefaultLimits())
	if err != nil || string(f.Cursor) != "second" {
		t.Errorf("%q, %v", f.Cursor, err)
	}
	b.SetCursor(nil)
	f, err = Decode(b.Finish(&h, Plain), fence.DefaultLimits())
	if err != nil || !f.HasCursor || len(f.Cursor) != 0 {
		t.Errorf("an empty cursor: %+v, %v", f, err)
	}
}

// TestBuilderGoesOn: after Finish the builder holds what it held, neither more
// (the cursor that comes after the payload) nor less.
func TestBuilderGoesOn(t *testing.T) {
	for _, codec := range []Codec{Plain, Zstd} {
		var b Builder
		var want []string
		for i := range 50 {
			rec := strings.Repeat(string(rune('a'+i%26)), i*10)
			want = append(want, rec)
			b.Add([]byte(rec))
			cursor := []byte(strings.Repeat("c", i))
			b.SetCursor(cursor)
			for range 2 { // also twice without a change
				size := b.Size()
				h := testHeader()
				f, err := Decode(b.Finish(&h, codec), fence.DefaultLimits())
				if err != nil {
					t.Fatalf("%s, %d records: %v", codecName(codec), len(want), err)
				}
				if !slices.Equal(recordsOf(f), want) || !bytes.Equal(f.Cursor, cursor) || b.Size() != size || b.Records() != len(want) {
					t.Fatalf("%s: %d records, %d wanted; cursor %q; size %d, was %d", codecName(codec), f.Header.Records, len(want), f.Cursor, b.Size(), size)
				}
			}
		}
	}
}

// A plain frame is the builder's buffer itself: the one copy of a record is the
// one that Add makes.
func TestFinishDoesNotCopyThePayload(t *testing.T) {
	var b Builder
	h := testHeader()
	fill := func() {
		b.Reset()
		b.Add(make([]byte, 1<<20))
		b.SetCursor([]byte("cursor"))
	}
	fill()
	b.Finish(&h, Plain) // grows the buffer to its size
	fill()
	buffer := unsafe.SliceData(b.buf)
	if frame := b.Finish(&h, Plain); unsafe.SliceData(frame) != buffer {
		t.Error("the frame is not the buffer that the records were added to")
	}
}

func TestReusedBuilderDoesNotAllocate(t *testing.T) {
	record, cursor := []byte(strings.Repeat("record ", 20)), []byte("cursor")
	for _, codec := range []Codec{Plain, Zstd} {
		var b Builder
		h := testHeader()
		n := testing.AllocsPerRun(50, func() {
			b.Reset()
			for range 1000 {
				b.Add(record)
			}
			b.SetCursor(cursor)
			b.Finish(&h, codec)
		})
		if n != 0 {
			t.Errorf("%s: %v allocations for 1000 records", codecName(codec), n)
		}
	}
}

// A payload that does not get smaller is stored plain.
func TestIncompressibleIsPlain(t *testing.T) {
	r := testRand(t)
	record := make([]byte, 10000)
	for i := range record {
		record[i] = byte(r.Uint32())
	}
	b, h := build(testHeader(), Zstd, nil, string(record))
	if h.Codec != Plain || len(b) != HeaderSize+RecordSize(len(record)) {
		t.Errorf("codec %d, %d bytes", h.Codec, len(b))
	}
	if f, err := Decode(b, fence.DefaultLimits()); err != nil || recordsOf(f)[0] != string(record) {
		t.Error(err)
	}
}

// Finish and EncodeSeal take from the header only what they say.
func TestEncodersIgnoreTheRestOfTheHeader(t *testing.T) {
	dirty, err := DecodeHeader(readHex(t, "data-zstd.hex"))
	if err != nil {
		t.Fatal(err)
	}
	if got := sealFrame(dirty, 9); !bytes.Equal(got, readHex(t, "seal.hex")) {
		t.Errorf("a seal from the header of data: %x", got)
	}
	dirty.Kind, dirty.Next = Seal, 9
	if got, _ := build(dirty, Plain, []byte("topic-3@77"), "x"); !bytes.Equal(got, readHex(t, "data-cursor.hex")) {
		t.Errorf("data from the header of a seal: %x", got)
	}
}

// Memory that was lent comes back, and the frame lies in one of the two.
func TestLendAndRelease(t *testing.T) {
	for codec, value := range map[Codec]byte{Plain: 0, Zstd: 0} {
		payload, packed := make([]byte, 0, 4096), make([]byte, 0, 4096)
		var b Builder
		b.Lend(payload, packed)
		b.Add(bytes.Repeat([]byte{value}, 1000))
		h := Header{Position: fence.Position{Epoch: 1, Seq: 1}}
		frame := b.Finish(&h, codec)
		gotPayload, gotPacked := b.Release()
		in := gotPayload
		if codec == Zstd {
			in = gotPacked
		}
		if &gotPayload[0] != &payload[:1][0] || &gotPacked[:1][0] != &packed[:1][0] || &in[0] != &frame[0] || h.Codec != codec {
			t.Errorf("codec %d: the memory is another", codec)
		}
		if !b.Empty() || b.Size() != 0 {
			t.Error("the builder is not empty")
		}
		if _, err := Decode(frame, fence.DefaultLimits()); err != nil {
			t.Error(err)
		}
	}
}

// TestLargeRecords: the checksum of a large record is taken while it is copied, between
// small ones, into a buffer that has room and one that has not, and when a builder is
// used again after Finish.
func TestLargeRecords(t *testing.T) {
	var b Builder
	for round := range 3 {
		var want []string
		for _, n := range []int{3, piece, piece + 1, 0, 5*piece - 1, 100, 3 * piece} {
			want = append(want, strings.Repeat(string(rune('a'+n%26)), n))
			b.Add([]byte(want[len(want)-1]))
			if n%2 == 0 {
				b.SetCursor([]byte("cursor"))
			}
			for _, codec := range []Codec{Zstd, Plain} {
				h := testHeader()
				f, err := Decode(b.Finish(&h, codec), fence.DefaultLimits())
				if err != nil || !slices.Equal(recordsOf(f), want) {
					t.Fatalf("round %d, %d records: %v", round, len(want), err)
				}
			}
		}
		b.Reset()
	}
	// Lent memory too.
	buf, _ := b.Release()
	b.Lend(buf, nil)
	b.Add(bytes.Repeat([]byte("x"), 4*piece))
	h := testHeader()
	if _, err := Decode(b.Finish(&h, Plain), fence.DefaultLimits()); err != nil {
		t.Error(err)
	}
	b.Reset()
	b.SetEdit([]byte("first"))
	b.Finish(&h, Plain)
	b.SetEdit(bytes.Repeat([]byte("y"), 4*piece))
	if _, err := Decode(b.Finish(&h, Plain), fence.DefaultLimits()); err != nil {
		t.Error(err)
	}
}

// Builders that pack at once and are stamped one after the other make the frames that
// Finish makes.
func TestBuilderPackAndStamp(t *testing.T) {
	for _, codec := range []Codec{Plain, Zstd} {
		filled := func(i int) *Builder {
			var b Builder
			for j := range 200 * i {
				b.Add(fmt.Appendf(nil, "record %d of %d", j, i))
			}
			if i%2 == 1 {
				b.SetCursor(fmt.Append(nil, i))
			}
			return &b
		}
		const n = 8
		var packed [n]*Builder
		var g sync.WaitGroup
		for i := range packed {
			packed[i] = filled(i)
			g.Go(func() { packed[i].Pack(codec) })
		}
		g.Wait()
		at := Point{Position: fence.Position{Epoch: 1, Seq: 1}}
		for i, b := range packed {
			h := testHeader()
			h.Position, h.Offset, h.Prev = at.Position, at.Offset, at.Prev
			again := h
			got, want := b.Stamp(&h), filled(i).Finish(&again, codec)
			if !bytes.Equal(got, want) || h != again {
				t.Errorf("%s, frame %d: %+v is not %+v", codecName(codec), i, h, again)
			}
			f, err := Decode(got, fence.DefaultLimits())
			if err != nil || f.Header != h {
				t.Fatalf("%s, frame %d: %+v, %v", codecName(codec), i, f, err)
			}
			if at, err = at.Next(h.Log, f); err != nil {
				t.Error(err)
			}
		}
	}
}

// What was added since Pack is not in its frame, so that is not stamped.
func TestBuilderStampWithoutPack(t *testing.T) {
	var b Builder
	stamps := func() (ok bool) {
		defer func() { ok = recover() == nil }()
		h := testHeader()
		f, err := Decode(b.Stamp(&h), fence.DefaultLimits())
		if err != nil || f.Header != h || !bytes.Equal(f.Cursor, b.Cursor()) {
			t.Errorf("%+v is not %+v, %v", f, h, err)
		}
		return true
	}
	for _, c := range []struct {
		name string
		do   func()
		ok   bool
	}{
		{"nothing", func() {}, false},
		{"Pack", func() { b.Pack(Zstd) }, true},
		{"nothing more", func() {}, true},
		{"Add", func() { b.Add([]byte("record")) }, false},
		{"Pack", func() { b.Pack(Zstd) }, true},
		{"SetCursor", func() { b.SetCursor([]byte("a")) }, false},
		{"Pack", func() { b.Pack(Plain) }, true},
		{"SetCursor of the same length", func() { b.SetCursor([]byte("b")) }, false},
		{"Pack", func() { b.Pack(Plain) }, true},
		{"Reset", func() { b.Reset() }, false},
		{"SetEdit", func() { b.SetEdit([]byte("edit")) }, false},
		{"Pack", func() { b.Pack(Zstd) }, true},
		{"Lend", func() { b.Release(); b.Lend(nil, nil) }, false},
	} {
		if c.do(); stamps() != c.ok {
			t.Errorf("after %s: stamped %v, want %v", c.name, !c.ok, c.ok)
		}
	}
}
