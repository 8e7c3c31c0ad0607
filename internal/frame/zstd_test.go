package frame

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/fixture"
)

// segment is a Zstandard frame of one segment that claims a size and has a block
// that repeats a zero for each length.
func segment(claim int, lengths ...int) []byte {
	b := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0} // single segment, 8 bytes of content size
	b = binary.LittleEndian.AppendUint64(b, uint64(claim))
	for i, n := range lengths {
		block := uint32(n)<<3 | 1<<1
		if i == len(lengths)-1 {
			block |= 1
		}
		b = append(b, byte(block), byte(block>>8), byte(block>>16), 0)
	}
	return b
}

func blocks(n, size int) []int {
	lengths := make([]int, n)
	for i := range lengths {
		lengths[i] = size
	}
	return lengths
}

// Below 256 bytes an encoder may leave out the content size, which a reader
// insists on. Every payload that was compressed must be readable.
func TestSmallCompressedPayloads(t *testing.T) {
	compressed := 0
	for n := range 600 {
		b, h := build(testHeader(), Zstd, nil, strings.Repeat("a", n))
		f, err := Decode(b, fence.DefaultLimits())
		if err != nil {
			t.Fatalf("a record of %d bytes, codec %d: %v", n, h.Codec, err)
		}
		if recordsOf(f)[0] != strings.Repeat("a", n) {
			t.Fatalf("a record of %d bytes came back changed", n)
		}
		if h.Codec == Zstd && h.rawLen < 256 {
			compressed++
		}
	}
	if compressed == 0 {
		t.Error("no payload below 256 bytes was compressed")
	}
}

// Longer than the encoder's window, so that window and size differ.
func TestLargeCompressedPayload(t *testing.T) {
	record := strings.Repeat("0123456789abcdef\x00", 9<<20/17)
	b, h := build(testHeader(), Zstd, nil, record)
	f, err := Decode(b, fence.DefaultLimits())
	if err != nil || h.Codec != Zstd || recordsOf(f)[0] != record {
		t.Errorf("codec %d, %v", h.Codec, err)
	}
}

func TestZstdErrors(t *testing.T) {
	one := segment(1000, 1000)
	window := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xc0, 0x78}, one[5:]...) // a window of 32 MiB
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4}, one...)
	dictionary := append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe1, 7}, one[5:]...)
	tests := []struct {
		name   string
		size   int
		stored []byte
		text   string
	}{
		{"not zstd", 1000, []byte("these bytes are none"), "zstd: "},
		{"no header", 1000, []byte{0x28, 0xb5, 0x2f, 0xfd}, "zstd: "},
		{"unbacked claim", 64 << 20, segment(64<<20, 1000), "zstd: 17 bytes cannot unpack to 67108864"},
		{"other size", 1001, one, "zstd: not one segment of 1001 bytes"},
		{"window", 1000, window, "zstd: not one segment of 1000 bytes"},
		{"skippable first", 1000, skippable, "zstd: not one segment of 1000 bytes"},
		{"dictionary", 1000, dictionary, "zstd: "},
		{"less than claimed", 1000, segment(1000, 999), "zstd: "},
		{"more than claimed", 1000, segment(1000, 999, 2), "zstd: "},
		{"no last block", 1000, segment(1000, 1000)[:13], "zstd: "},
		{"a second frame", 1000, append(segment(1000, 1000), segment(1, 1)...), "zstd: "},
		{"garbage behind", 1000, append(segment(1000, 1000), "garbage"...), "zstd: "},
	}
	for _, tt := range tests {
		_, err := Decode(raw(Zstd, tt.size, tt.size, tt.stored), fence.DefaultLimits())
		t.Run(tt.name, func(t *testing.T) { fixture.WantErr(t, err, fence.ErrCorrupt, tt.text) })
	}
	f, err := Decode(raw(Zstd, 1000, 1000, one), fence.DefaultLimits())
	if err != nil || len(recordsOf(f)) != 1000 {
		t.Errorf("the frame that the others are made of: %v", err)
	}
}

// TestHostileFramesAllocateLittle: what a frame claims costs nothing, and what it
// really unpacks to is bounded by the limits.
func TestHostileFramesAllocateLittle(t *testing.T) {
	// The decoders' own buffers are made once.
	for range 50 {
		_, _ = Decode(raw(Zstd, 1<<20, 1<<20, segment(1<<20, blocks(8, 128<<10)...)), fence.DefaultLimits())
	}
	tests := []struct {
		name   string
		frame  []byte
		object int
		most   int64
	}{
		{
			"200 bytes that claim 64 MiB",
			raw(Zstd, 64<<20, 64<<20, segment(64<<20, blocks(14, 128<<10)...)), 64 << 20, 64 << 10,
		},
		{
			"a second Zstandard frame that claims 1 GiB",
			raw(Zstd, 1000, 1000, append(segment(1000, 1000), segment(1<<30, blocks(100, 128<<10)...)...)), 64 << 20, 64 << 10,
		},
		{
			"twice what it claims",
			raw(Zstd, 8<<20, 8<<20, segment(8<<20, blocks(128, 128<<10)...)), 8 << 20, 3 * 8 << 20,
		},
		{
			"a second Zstandard frame without a size",
			raw(Zstd, 8<<20, 8<<20, append(segment(8<<20, blocks(64, 128<<10)...),
				append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x78}, segment(0, blocks(64, 128<<10)...)[13:]...)...)), 8 << 20, 3 * 8 << 20,
		},
	}
	for _, tt := range tests {
		limits := fence.Limits{Object: int64(tt.object), Record: 1, Cursor: 0}
		var err error
		n := test.Allocated(func() { _, err = Decode(tt.frame, limits) })
		fixture.WantErr(t, err, fence.ErrCorrupt, "zstd: ")
		t.Logf("%s: a frame of %d bytes, %d bytes allocated", tt.name, len(tt.frame), n)
		if n > tt.most {
			t.Errorf("%s: a frame of %d bytes made Decode allocate %d, at most %d", tt.name, len(tt.frame), n, tt.most)
		}
	}
}

// What was unpacked and given up is not kept by the decompressors.
func TestUnpackedIsNotKept(t *testing.T) {
	stored, size := func() ([]byte, int) {
		var b []byte
		for i := 0; len(b) < 16<<20; i++ {
			b = fmt.Appendf(b, "record %d of some, %d\n", i, i*i)
		}
		return compress(nil, b), len(b)
	}()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for range 2 * runtime.GOMAXPROCS(0) {
		if got, err := decompress(stored, size); err != nil || len(got) != size {
			t.Fatal(len(got), err)
		}
	}
	if kept := heap() - before; kept > int64(size)/2 {
		t.Errorf("%d bytes are kept of payloads of %d", kept, size)
	}
	runtime.KeepAlive(stored)
}

// What is shared between frames belongs to no bubble: it works in the second one too.
func TestBubbles(t *testing.T) {
	for range 2 {
		synctest.Test(t, func(t *testing.T) {
			for _, n := range []int{1000, 2 * large} {
				b, h := build(testHeader(), Zstd, nil, strings.Repeat("a", n))
				if _, err := Decode(b, fence.DefaultLimits()); err != nil || h.Codec != Zstd {
					t.Error(h.Codec, err)
				}
			}
		})
	}
}
