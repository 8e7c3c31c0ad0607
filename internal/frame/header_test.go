package frame

import (
	"bytes"
	"math"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// TestHeaderErrors has a row for every reason to refuse a header. The base frames
// are good; a row spoils one thing, and the checksum is right again.
func TestHeaderErrors(t *testing.T) {
	tests := []struct {
		name  string
		file  string
		spoil func(*Header)
		kind  error
		text  string
	}{
		{"kind", "data.hex", func(h *Header) { h.Kind = 4 }, fence.ErrFormat, "object kind 4; upgrade this program"},
		{"kind 0", "data.hex", func(h *Header) { h.Kind = 0 }, fence.ErrFormat, "object kind 0; upgrade"},
		{"codec", "data.hex", func(h *Header) { h.Codec = 2 }, fence.ErrFormat, "codec 2; upgrade this program"},
		{"seq 0", "data.hex", func(h *Header) { h.Position.Seq = 0 }, fence.ErrCorrupt, "sequence number 0"},
		{"last seq", "data.hex", func(h *Header) { h.Position.Seq = math.MaxUint64 }, fence.ErrCorrupt, "sequence number 18446744073709551615"},
		{"seal of itself", "seal.hex", func(h *Header) { h.Next = 7 }, fence.ErrCorrupt, "a seal in epoch 7 names epoch 7, which is not later"},
		{"seal backwards", "seal.hex", func(h *Header) { h.Next = 6 }, fence.ErrCorrupt, "which is not later"},
		{"seal with records", "seal.hex", func(h *Header) { h.Records = 1 }, fence.ErrCorrupt, "a seal with a body"},
		{"seal with stored bytes", "seal.hex", func(h *Header) { h.storedLen = 1 }, fence.ErrCorrupt, "a seal with a body"},
		{"seal with raw bytes", "seal.hex", func(h *Header) { h.rawLen = 1 }, fence.ErrCorrupt, "a seal with a body"},
		{"seal with cursor bytes", "seal.hex", func(h *Header) { h.cursorLen = 1 }, fence.ErrCorrupt, "a seal with a body"},
		{"seal with a cursor", "seal.hex", func(h *Header) { h.HasCursor = true }, fence.ErrCorrupt, "a seal with a body"},
		{"seal with a codec", "seal.hex", func(h *Header) { h.Codec = Zstd }, fence.ErrCorrupt, "a seal with a body"},
		{"seal with an offset", "seal.hex", func(h *Header) { h.Offset = 1 }, fence.ErrCorrupt, "a seal with an offset"},
		{"seal with a previous", "seal.hex", func(h *Header) { h.Prev = 1 }, fence.ErrCorrupt, "or a previous checksum"},
		{"data in epoch 0", "data.hex", func(h *Header) { h.Position.Epoch = 0 }, fence.ErrCorrupt, "data in epoch 0"},
		{"data with next", "data.hex", func(h *Header) { h.Next = 9 }, fence.ErrCorrupt, "data that names a next epoch"},
		{"plain lengths", "data.hex", func(h *Header) { h.rawLen++ }, fence.ErrCorrupt, "a plain payload of 160 bytes is stored in 159"},
		{"zstd lengths", "data-zstd.hex", func(h *Header) { h.rawLen = h.storedLen }, fence.ErrCorrupt, "a compressed payload of 21 bytes is stored in 21"},
		{"cursor without flag", "data.hex", func(h *Header) { h.cursorLen = 1 }, fence.ErrCorrupt, "a cursor of 1 bytes without its flag"},
		{"too many records", "data.hex", func(h *Header) { h.Records = 160 }, fence.ErrCorrupt, "160 records in 159 bytes"},
		{"edit with records", "edit.hex", func(h *Header) { h.Records = 1 }, fence.ErrCorrupt, "an edit with 1 records"},
		{"edit of nothing", "edit.hex", func(h *Header) { h.rawLen, h.storedLen = 0, 0 }, fence.ErrCorrupt, "a document of 0 bytes"},
		{"edit in epoch 0", "edit.hex", func(h *Header) { h.Position.Epoch = 0 }, fence.ErrCorrupt, "edit in epoch 0"},
		{"edit with next", "edit.hex", func(h *Header) { h.Next = 9 }, fence.ErrCorrupt, "edit that names a next epoch"},
		{"offset overflow", "data.hex", func(h *Header) { h.Offset = math.MaxUint64 - 2 }, fence.ErrCorrupt, "offset overflows"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := readHex(t, tt.file)
			h, err := DecodeHeader(b)
			if err != nil {
				t.Fatal(err)
			}
			tt.spoil(&h)
			h.put(b)
			got, err := DecodeHeader(b)
			fixture.WantErr(t, err, tt.kind, tt.text)
			if got != h {
				t.Errorf("the header beside the error is %+v, want %+v", got, h)
			}
			_, err = Decode(b, fence.DefaultLimits())
			fixture.WantErr(t, err, tt.kind, tt.text)
		})
	}
}

func TestHeaderErrorsBelowTheFields(t *testing.T) {
	good := readHex(t, "data.hex")
	spoiled := func(i int, v byte) []byte {
		b := bytes.Clone(good)
		b[i] = v
		return b
	}
	tests := []struct {
		name string
		b    []byte
		kind error
		text string
	}{
		{"empty", nil, fence.ErrCorrupt, "0 bytes are too short for a header of 128"},
		{"short", good[:127], fence.ErrCorrupt, "127 bytes are too short"},
		{"magic", redo(spoiled(3, 'Q')), fence.ErrCorrupt, `does not begin with "FNCP"`},
		{"checksum", spoiled(126, good[126]^1), fence.ErrCorrupt, "header checksum is"},
		{"newer version", redo(spoiled(4, 2)), fence.ErrFormat, "frame version 2, this program knows 1; upgrade this program"},
		{"damaged version", spoiled(4, 2), fence.ErrCorrupt, "header checksum is"},
		{"newer flag", redo(spoiled(7, 0x80)), fence.ErrFormat, "frame flags 10000000; upgrade this program"},
		{"newer flag and cursor", redo(spoiled(7, 3)), fence.ErrFormat, "frame flags 00000010; upgrade this program"},
	}
	for _, tt := range tests {
		_, err := DecodeHeader(tt.b)
		fixture.WantErr(t, err, tt.kind, tt.text)
		f, err := Decode(tt.b, fence.DefaultLimits())
		fixture.WantErr(t, err, tt.kind, tt.text)
		if f != nil {
			t.Errorf("%s: a frame beside the error", tt.name)
		}
	}
}

// The last usable numbers are still good.
func TestHeaderExtremes(t *testing.T) {
	h := testHeader()
	h.Position = fence.Position{Epoch: math.MaxUint64, Seq: math.MaxUint64 - 1}
	h.Offset, h.Prev = math.MaxUint64-1, math.MaxUint32
	b, want := build(h, Plain, nil, "r")
	f, err := Decode(b, fence.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if f.Header != want {
		t.Errorf("%+v, want %+v", f.Header, want)
	}
	b = sealFrame(Header{Position: Genesis()}, math.MaxUint64)
	if f, err = Decode(b, fence.DefaultLimits()); err != nil || f.Next != math.MaxUint64 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestT13_NonceInTheHeader: equal contents in the same slot give different
// objects, and the leading HeaderSize bytes suffice to see it.
func TestT13_NonceInTheHeader(t *testing.T) {
	h := testHeader()
	data1, _ := build(h, Plain, nil, "same")
	seal1 := sealFrame(h, 9)
	h.Nonce[15] ^= 1
	data2, _ := build(h, Plain, nil, "same")
	seal2 := sealFrame(h, 9)
	for _, pair := range [][2][]byte{{data1, data2}, {seal1, seal2}} {
		a, _ := DecodeHeader(pair[0][:HeaderSize])
		b, _ := DecodeHeader(pair[1][:HeaderSize])
		if a.Nonce == b.Nonce || a.Checksum() == b.Checksum() {
			t.Errorf("%v: nonces %v and %v, checksums %08x and %08x", a.Kind, a.Nonce, b.Nonce, a.Checksum(), b.Checksum())
		}
	}
}

func TestKindString(t *testing.T) {
	if s := Data.String() + " " + Seal.String() + " " + Edit.String() + " " + Kind(9).String(); s != "data seal edit kind 9" {
		t.Error(s)
	}
}
