package frame

import (
	"runtime"

	"github.com/klauspost/compress/zstd"
)

// zstdBlock is the most that one block of a Zstandard frame unpacks to, and
// zstdBlockMin the least that one takes: 3 bytes of header, 1 to repeat.
const (
	zstdBlock    = 128 << 10
	zstdBlockMin = 4
)

// MaxPacking is how many payloads at most are compressed at once in a process. Eight are
// faster than a network. Each needs 300 KB of memory, or some megabytes once it has
// compressed a large payload. Further payloads wait.
const MaxPacking = 8

// Encoder and decoder are made with the package, not when they are first used. They use
// channels, and a channel that is made in a bubble of testing/synctest belongs to that
// bubble: tests could then use them in their first bubble only.
var (
	encoder = newEncoder(min(runtime.NumCPU(), MaxPacking))
	decoder = newDecoder(0)
)

// A single segment always states its content size. Without that option the encoder omits
// it below 256 bytes, and decompress would refuse what compress has made.
func newEncoder(concurrency int) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithEncoderConcurrency(concurrency))
	if err != nil {
		panic("frame: " + err.Error()) // only wrong options can cause it
	}
	e.EncodeAll(make([]byte, 1), nil) // until then it has no channel
	return e
}

// The decoder stays within the capacity that it is given, since a second Zstandard frame
// that claims gigabytes may follow the first.
func newDecoder(concurrency int) *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(concurrency))
	if err != nil {
		panic("frame: " + err.Error())
	}
	return d
}

// large is the size, in bytes, from which a payload gets a decoder of its own. A decoder
// keeps its last result until its next use, one for each processor; for large objects
// that were hundreds of megabytes. A decoder costs little beside a large payload.
const large = 1 << 20

func decodeAll(stored []byte, size int) ([]byte, error) {
	d := decoder
	if size > large {
		d = newDecoder(1)
	}
	return d.DecodeAll(stored, make([]byte, 0, size))
}

// compress appends a Zstandard frame with src in it to dst.
func compress(dst, src []byte) []byte { return encoder.EncodeAll(src, dst) }

// decompress returns the size bytes that stored decompresses to. It refuses a size that
// stored cannot reach before it allocates anything. Then it allocates size bytes. If
// stored turns out to hold more, it allocates 5/4 of that once more before it notices.
func decompress(stored []byte, size int) ([]byte, error) {
	if int64(size) > int64(len(stored)/zstdBlockMin)*zstdBlock {
		return nil, corrupt("zstd: %d bytes cannot unpack to %d", len(stored), size)
	}
	var zh zstd.Header
	if err := zh.Decode(stored); err != nil {
		return nil, corrupt("zstd: %v", err)
	}
	// A single segment states its size and asks for no window besides. The decoder
	// checks that it keeps to it.
	if !zh.SingleSegment || zh.FrameContentSize != uint64(size) {
		return nil, corrupt("zstd: not one segment of %d bytes", size)
	}
	out, err := decodeAll(stored, size)
	if err != nil {
		return nil, corrupt("zstd: %v", err)
	}
	return out, nil
}
