package frame

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// The golden files were checked once against a reading of docs/format.md in
// another language. They never change: old logs must stay readable.

func TestGoldenEncode(t *testing.T) {
	data, _ := build(testHeader(), Plain, nil, "first", "", strings.Repeat("long ", 30))
	cursor, _ := build(testHeader(), Plain, []byte("topic-3@77"), "x")
	for name, got := range map[string][]byte{
		"data.hex":        data,
		"data-cursor.hex": cursor,
		"edit.hex":        editFrame(testHeader(), Plain, []byte("topic-3@78"), `{"unset":["a"]}`),
		"seal.hex":        sealFrame(testHeader(), 9),
	} {
		if want := readHex(t, name); !bytes.Equal(got, want) {
			t.Errorf("%s: encoded\n%x, the file has\n%x", name, got, want)
		}
	}
}

func TestGoldenDecode(t *testing.T) {
	base := testHeader()
	base.Kind = Data
	tests := []struct {
		file    string
		change  func(*Header)
		cursor  []byte
		records []string
	}{
		{"data.hex", func(h *Header) { h.Records = 3 }, nil, []string{"first", "", strings.Repeat("long ", 30)}},
		{"data-cursor.hex", func(h *Header) { h.Records, h.HasCursor = 1, true }, []byte("topic-3@77"), []string{"x"}},
		{
			"data-zstd.hex", func(h *Header) { h.Records, h.HasCursor, h.Codec = 2, true, Zstd },
			[]byte("c"), []string{strings.Repeat("a", 100), strings.Repeat("b", 100)},
		},
		{"edit.hex", func(h *Header) { h.Kind, h.HasCursor = Edit, true }, []byte("topic-3@78"), nil},
		{"seal.hex", func(h *Header) { h.Kind, h.Next, h.Offset, h.Prev = Seal, 9, 0, 0 }, nil, nil},
	}
	for _, tt := range tests {
		b := readHex(t, tt.file)
		f, err := Decode(b, fence.DefaultLimits())
		if err != nil {
			t.Errorf("%s: %v", tt.file, err)
			continue
		}
		want := base
		tt.change(&want)
		got := f.Header
		if got.Checksum() != binary.LittleEndian.Uint32(b[124:]) {
			t.Errorf("%s: checksum %08x", tt.file, got.Checksum())
		}
		got.cursorLen, got.storedLen, got.rawLen, got.bodyCRC, got.checksum = 0, 0, 0, 0, 0
		if got != want {
			t.Errorf("%s: header\n%+v, want\n%+v", tt.file, got, want)
		}
		if doc := string(f.Edit()); (doc == `{"unset":["a"]}`) != (f.Kind == Edit) {
			t.Errorf("%s: document %q", tt.file, doc)
		}
		if !bytes.Equal(f.Cursor, tt.cursor) || !slices.Equal(recordsOf(f), tt.records) {
			t.Errorf("%s: cursor %q, records %q", tt.file, f.Cursor, recordsOf(f))
		}
	}
}

// TestChecksumIsCastagnoli pins the polynomial to the check value that
// docs/format.md quotes.
func TestChecksumIsCastagnoli(t *testing.T) {
	if sum := crc32.Checksum([]byte("123456789"), castagnoli); sum != 0xe3069283 {
		t.Errorf("%08x", sum)
	}
}

// fields are the rows of docs/format.md that decode to something.
func fields(h Header) map[string]any {
	return map[string]any{
		"kind": h.Kind, "codec": h.Codec, "flags": h.HasCursor, "log": h.Log, "nonce": h.Nonce,
		"epoch": h.Position.Epoch, "seq": h.Position.Seq, "offset": h.Offset, "records": h.Records,
		"previous": h.Prev, "time": h.Time, "cursor length": h.cursorLen, "stored length": h.storedLen,
		"raw length": h.rawLen, "body checksum": h.bodyCRC, "next": h.Next,
	}
}

// TestDocumentedLayout changes every byte of a header and looks whether the field
// changes that docs/format.md says is there, and no other.
func TestDocumentedLayout(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	base := readHex(t, "data-cursor.hex")
	h, err := DecodeHeader(base)
	if err != nil {
		t.Fatal(err)
	}
	before := fields(h)
	rest := fields(h) // rows not yet seen
	end := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| ([a-z ]+) \|`).FindAllStringSubmatch(string(doc), -1) {
		offset, _ := strconv.Atoi(row[1])
		size, _ := strconv.Atoi(row[2])
		name := row[3]
		if offset != end {
			t.Errorf("%s: at %d, the row before it ends at %d", name, offset, end)
		}
		end = offset + size
		delete(rest, name)
		for i := offset; i < end; i++ {
			b := bytes.Clone(base)
			b[i] ^= 1
			if i < 124 {
				binary.LittleEndian.PutUint32(b[124:], crc32.Checksum(b[:124], castagnoli))
			}
			h, err := DecodeHeader(b)
			changed := slices.Collect(maps.Keys(fields(h)))
			changed = slices.DeleteFunc(changed, func(f string) bool { return fields(h)[f] == before[f] })
			switch name {
			case "magic":
				fixture.WantErr(t, err, fence.ErrCorrupt, `does not begin with "FNCP"`)
			case "version":
				fixture.WantErr(t, err, fence.ErrFormat, "frame version 0")
			case "header checksum":
				fixture.WantErr(t, err, fence.ErrCorrupt, "header checksum")
			case "reserved":
				if err != nil || len(changed) != 0 {
					t.Errorf("reserved byte %d: changes %q, error %v", i, changed, err)
				}
			default:
				if !slices.Equal(changed, []string{name}) {
					t.Errorf("byte %d is documented as %q, it changes %q", i, name, changed)
				}
			}
		}
	}
	if end != HeaderSize || len(rest) != 0 {
		t.Errorf("the rows end at %d of %d bytes; without a row: %v", end, HeaderSize, rest)
	}
}

func TestDocumentedLimits(t *testing.T) {
	doc, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		fmt.Sprintf("| object | %d MiB | %d GiB |", fence.DefaultLimits().Object>>20, fence.MaxObject>>30),
		fmt.Sprintf("| record | %d MiB |", fence.DefaultLimits().Record>>20),
		fmt.Sprintf("| cursor | %d KiB | %d MiB |", fence.DefaultLimits().Cursor>>10, fence.MaxCursor>>20),
	} {
		if !strings.Contains(string(doc), row) {
			t.Errorf("docs/format.md does not have %q", row)
		}
	}
}
