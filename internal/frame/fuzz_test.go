package frame

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
)

// Fuzzers do not guess checksums, so each input is tried twice: as it is, and
// dressed as a frame whose checksums are right.
func dressed(b []byte) [][]byte {
	if len(b) < HeaderSize {
		return [][]byte{b}
	}
	d := bytes.Clone(b)
	copy(d, magic)
	return [][]byte{b, redo(d)}
}

func addGolden(f *testing.F) {
	for _, name := range goldenFiles {
		f.Add(readHex(f, name))
	}
}

func known(err error) bool {
	return errors.Is(err, fence.ErrCorrupt) || errors.Is(err, fence.ErrFormat) || errors.Is(err, fence.ErrLimit)
}

// What decoding takes: some memory for each byte, and a constant, which has what one payload of the limits below and a decoder take.
const (
	slack          = 64 << 10
	decodeFactor   = 8
	decodeConstant = 1 << 20
)

// A header that is accepted says again what it says when it is written again.
func FuzzDecodeHeader(f *testing.F) {
	addGolden(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range dressed(b) {
			var h Header
			var err error
			test.Affords(t, len(b), 0, slack, func() { h, err = DecodeHeader(b) })
			if err != nil {
				if !known(err) {
					t.Fatal(err)
				}
				continue
			}
			again := make([]byte, HeaderSize)
			first := h
			h.put(again)
			first.checksum = h.checksum // reserved bytes may have differed
			if got, err := DecodeHeader(again); err != nil || got != first {
				t.Fatalf("%+v became %+v, %v", first, got, err)
			}
		}
	})
}

// A frame that is accepted can be walked, and built again from its parts.
func FuzzDecode(f *testing.F) {
	addGolden(f)
	limits := fence.Limits{Object: 1 << 16, Record: 1 << 12, Cursor: 64}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range dressed(b) {
			var fr *Frame
			var err error
			test.Affords(t, len(b), decodeFactor, decodeConstant, func() { fr, err = Decode(b, limits) })
			if err != nil {
				if !known(err) || fr != nil {
					t.Fatalf("%v, %v", fr, err)
				}
				continue
			}
			if int64(fr.PayloadLen()) > limits.Object || int64(len(fr.Cursor)) > limits.Cursor {
				t.Fatalf("payload %d, cursor %d", fr.PayloadLen(), len(fr.Cursor))
			}
			records := recordsOf(fr)
			if len(records) != int(fr.Header.Records) {
				t.Fatalf("%d records, the header says %d", len(records), fr.Header.Records)
			}
			h := fr.Header
			var again []byte
			if h.Kind == Seal {
				again = sealFrame(h, h.Next)
			} else {
				var cursor []byte
				if fr.HasCursor {
					cursor = fr.Cursor
				}
				if h.Kind == Edit {
					again = editFrame(h, h.Codec, cursor, string(fr.Edit()))
				} else {
					again, _ = build(h, h.Codec, cursor, records...)
				}
			}
			got, err := Decode(again, limits)
			if err != nil || !slices.Equal(recordsOf(got), records) || !bytes.Equal(got.Cursor, fr.Cursor) || got.HasCursor != fr.HasCursor ||
				got.Position != h.Position || got.Kind != h.Kind || got.Next != h.Next || !bytes.Equal(got.Edit(), fr.Edit()) {
				t.Fatalf("%+v became %+v, %v", h, got, err)
			}
		}
	})
}

// The chain leads on or stays where it is, whatever stands in a slot.
func FuzzPointNext(f *testing.F) {
	for _, name := range goldenFiles {
		f.Add(uint64(7), uint64(42), uint64(1000), uint32(0xcafef00d), readHex(f, name))
	}
	f.Fuzz(func(t *testing.T, epoch, seq, offset uint64, prev uint32, b []byte) {
		p := Point{Position: fence.Position{Epoch: fence.Epoch(epoch), Seq: seq}, Offset: offset, Prev: prev, Cursor: []byte("c")}
		for _, b := range dressed(b) {
			fr, err := Decode(b, fence.Limits{Object: 1 << 16, Record: 1 << 12, Cursor: 64})
			if err != nil {
				continue
			}
			next, err := p.Next(testLog, fr)
			if err != nil {
				if !errors.Is(err, fence.ErrCorrupt) || !next.Equal(p) {
					t.Fatalf("%+v, %v", next, err)
				}
				continue
			}
			if !p.Before(next) || !next.Valid() || next.Offset != p.Offset+uint64(fr.Header.Records) || next.Prev != fr.Checksum() {
				t.Fatalf("from %+v to %+v", p, next)
			}
			if fr.Position != p.Position || fr.Log != testLog || fr.Kind == Data && (fr.Offset != p.Offset || fr.Prev != p.Prev) {
				t.Fatalf("%+v accepted %+v", p, fr.Header)
			}
		}
	})
}

// What is checked and not unpacked has the payload that a frame has, and is a frame
// again once it is packed anew, at another place.
func FuzzDecodeStored(f *testing.F) {
	addGolden(f)
	limits := fence.Limits{Object: 1 << 16, Record: 1 << 12, Cursor: 64}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range dressed(b) {
			var s *Stored
			var err error
			test.Affords(t, len(b), decodeFactor, decodeConstant, func() { s, err = DecodeStored(b, limits) })
			fr, whole := Decode(b, limits)
			if err != nil {
				if !known(err) || s != nil || whole == nil {
					t.Fatalf("%v, %v; as a frame %v", s, err, whole)
				}
				continue
			}
			if whole != nil || fr.Kind == Seal {
				continue
			}
			h := Header{Log: fr.Log, Nonce: fr.Nonce, Position: fence.Position{Epoch: fr.Position.Epoch, Seq: fr.Position.Seq + 1}, Offset: fr.Offset, Time: fr.Time}
			header, payload := s.Repack(&h)
			again, err := Decode(slices.Concat(header, payload), limits)
			if err != nil || again.HasCursor || again.Position != h.Position || !bytes.Equal(again.Edit(), fr.Edit()) || !slices.Equal(recordsOf(again), recordsOf(fr)) {
				t.Fatalf("%+v became %+v, %v", fr.Header, again, err)
			}
		}
	})
}
