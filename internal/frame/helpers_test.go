package frame

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
)

var (
	testLog   = fence.ID{0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f}
	testNonce = fence.ID{0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x29, 0x2a, 0x2b, 0x2c, 0x2d, 0x2e, 0x2f}
	testTime  = time.Date(2024, 2, 29, 12, 34, 56, 789012000, time.UTC)
)

// testHeader is what a writer knows before it encodes.
func testHeader() Header {
	return Header{
		Log: testLog, Nonce: testNonce, Position: fence.Position{Epoch: 7, Seq: 42},
		Offset: 1000, Prev: 0xcafef00d, Time: testTime,
	}
}

// build returns a data frame of its own memory, and its completed header.
func build(h Header, codec Codec, cursor []byte, records ...string) ([]byte, Header) {
	var b Builder
	for _, r := range records {
		b.Add([]byte(r))
	}
	if cursor != nil {
		b.SetCursor(cursor)
	}
	return b.Finish(&h, codec), h
}

// editFrame returns the frame of an edit.
func editFrame(h Header, codec Codec, cursor []byte, doc string) []byte {
	var b Builder
	b.SetEdit([]byte(doc))
	if cursor != nil {
		b.SetCursor(cursor)
	}
	return b.Finish(&h, codec)
}

func sealFrame(h Header, next fence.Epoch) []byte { return EncodeSeal(&h, next) }

// redo makes the checksums of a tampered frame right again.
func redo(frame []byte) []byte {
	le := binary.LittleEndian
	le.PutUint32(frame[92:], crc32.Checksum(frame[HeaderSize:], castagnoli))
	le.PutUint32(frame[124:], crc32.Checksum(frame[:124], castagnoli))
	return frame
}

// raw makes a data frame around any stored bytes that claim to unpack to size.
func raw(codec Codec, records, size int, stored []byte) []byte {
	h := testHeader()
	h.Kind, h.Codec, h.Records = Data, codec, uint32(records)
	h.rawLen, h.storedLen = uint32(size), uint32(len(stored))
	frame := append(make([]byte, HeaderSize), stored...)
	h.put(frame)
	return redo(frame)
}

func recordsOf(f *Frame) []string {
	var rs []string
	for _, r := range f.All() {
		rs = append(rs, string(r))
	}
	return rs
}

// readHex reads a dump: hexadecimal bytes, spaces, comments from # to the end of
// the line.
func readHex(t testing.TB, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	var digits strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		for _, field := range strings.Fields(line) {
			digits.WriteString(field)
		}
	}
	b, err := hex.DecodeString(digits.String())
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return b
}

var goldenFiles = []string{"data.hex", "data-cursor.hex", "data-zstd.hex", "edit.hex", "seal.hex"}

func testRand(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomRecords are few or many, empty or long, and sometimes compressible.
func randomRecords(r *rand.Rand) []string {
	rs := make([]string, r.IntN(40))
	for i := range rs {
		b := make([]byte, r.IntN(3)*r.IntN(300))
		if r.IntN(2) == 0 {
			for j := range b {
				b[j] = byte(r.Uint32())
			}
		}
		rs[i] = string(b)
	}
	return rs
}
