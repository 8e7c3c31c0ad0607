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

// MaxPacking is how many payloads are compressed at once in a process, at most: so many
// are faster than a network, and each takes 300 KB, and some megabytes once one of them
// was large. More wait for their turn.
const MaxPacking = 8

// Encoder and decoder are made with the package, not when they are first used: they wait
// in channels, and a channel that is made in a bubble of testing/synctest belongs to it.
// Whoever tests with bubbles could use them in the first one only.
var (
	encoder = newEncoder(min(runtime.NumCPU(), MaxPacking))
	decoder = newDecoder(0)
)

// A single segment always states its content size. Without that option the
// encoder leaves it out below 256 bytes, and compress could not be undone by
// decompress.
func newEncoder(concurrency int) *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true), zstd.WithEncoderConcurrency(concurrency))
	if err != nil {
		panic("fence: " + err.Error()) // only wrong options can cause it
	}
	e.EncodeAll(make([]byte, 1), nil) // until then it has no channel
	return e
}

// The decoder stays within the capacity that it is given: what follows the first
// Zstandard frame may be a second that claims gigabytes.
func newDecoder(concurrency int) *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(concurrency))
	if err != nil {
		panic("fence: " + err.Error())
	}
	return d
}

// A decoder keeps what it has unpacked last until it begins anew, one for each processor:
// of large objects that were hundreds of megabytes. So each large payload has a decoder
// of its own, which costs little beside it.
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

// decompress returns the size bytes that stored unpacks to. A claim that stored
// cannot back is refused before anything is allocated; then it allocates size
// bytes, and, when stored turns out to hold more, 5/4 of that once more before
// the last block is found to be too much.
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
