package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

const (
	magic       = "FNSG"
	version     = 1
	entrySize   = 32
	trailerSize = 64
	// maxIndex bounds an index, in bytes: some 2 million blocks.
	maxIndex  = 64 << 20
	maxBlocks = (maxIndex - trailerSize) / entrySize
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Block is an entry of the index.
type Block struct {
	At     int64 // place in the segment
	Len    int64
	First  uint64 // offset of its first record
	Latest time.Time
}

// DecodeIndex decodes index and trailer, which are the last Summary.Index bytes of a
// segment of the given size. Errors: fence.ErrCorrupt, fence.ErrFormat.
func DecodeIndex(tail []byte, size int64, log fence.ID, first, end uint64) ([]Block, error) {
	bad := func(format string, args ...any) ([]Block, error) {
		return nil, fmt.Errorf("%w: segment index: %s", fence.ErrCorrupt, fmt.Sprintf(format, args...))
	}
	if len(tail) < trailerSize || int64(len(tail)) > size {
		return bad("%d bytes of %d", len(tail), size)
	}
	le := binary.LittleEndian
	t := tail[len(tail)-trailerSize:]
	if string(t[56:60]) != magic {
		return bad("it does not end with %q", magic)
	}
	// Check the checksum, which has the same place in all versions, before the version.
	// Otherwise a damaged version byte would tell people to upgrade.
	if sum := crc32.Checksum(tail[:len(tail)-4], castagnoli); sum != le.Uint32(t[60:]) {
		return bad("checksum is %08x, should be %08x", le.Uint32(t[60:]), sum)
	}
	if t[52] != version {
		return nil, fmt.Errorf("%w: segment version %d, this program knows %d; upgrade this program", fence.ErrFormat, t[52], version)
	}
	n := (len(tail) - trailerSize) / entrySize
	if n == 0 || (len(tail)-trailerSize)%entrySize != 0 {
		return bad("it has %d bytes", len(tail))
	}
	switch {
	case [16]byte(t[:16]) != [16]byte(log):
		return bad("it belongs to log %x, this is log %s", t[:16], log)
	case le.Uint64(t[16:]) != first || le.Uint64(t[24:]) != end:
		return bad("it holds [%d, %d), the manifest says [%d, %d)", le.Uint64(t[16:]), le.Uint64(t[24:]), first, end)
	case le.Uint64(t[32:]) != uint64(size)-uint64(len(tail)) || le.Uint32(t[40:]) != uint32(n):
		return bad("%d blocks in %d bytes, found %d in %d", le.Uint32(t[40:]), le.Uint64(t[32:]), n, size-int64(len(tail)))
	}
	blocks := make([]Block, n)
	var at uint64
	for i := range blocks {
		e := tail[i*entrySize:]
		b := Block{At: int64(le.Uint64(e)), Len: int64(le.Uint64(e[8:])), First: le.Uint64(e[16:]), Latest: time.UnixMicro(int64(le.Uint64(e[24:]))).UTC()}
		switch {
		case uint64(b.At) != at || b.Len < frame.HeaderSize || b.At+b.Len > size-int64(len(tail)) || b.At+b.Len < 0:
			return bad("block %d is at %d with %d bytes", i, b.At, b.Len)
		case i == 0 && b.First != first, i > 0 && b.First <= blocks[i-1].First, b.First >= end:
			return bad("block %d begins with record %d", i, b.First)
		}
		at += uint64(b.Len)
		blocks[i] = b
	}
	if at != uint64(size)-uint64(len(tail)) {
		return bad("the blocks end at %d of %d", at, size-int64(len(tail)))
	}
	return blocks, nil
}

// Find returns the number of the block with the record at offset. The record must not lie
// before the first block.
func Find(blocks []Block, offset uint64) int {
	return sort.Search(len(blocks), func(i int) bool { return blocks[i].First > offset }) - 1
}

// blockLimits are the limits of a block. It may hold more than an object of the chain.
func blockLimits(l fence.Limits) fence.Limits {
	l.Object = max(l.Object, BlockSize)
	return l
}

// DecodeBlock reads block i of a segment that ends before the record end.
func DecodeBlock(b []byte, blocks []Block, i int, log fence.ID, end uint64, limits fence.Limits) (*frame.Frame, error) {
	f, err := frame.Decode(b, blockLimits(limits))
	if err != nil {
		return nil, err
	}
	if err := checkBlock(&f.Header, blocks, i, log, end); err != nil {
		return nil, err
	}
	return f, nil
}

// decodeWhole is DecodeBlock for a block that can stay as it is, and nil for others.
func decodeWhole(b []byte, blocks []Block, i int, log fence.ID, end uint64, limits fence.Limits) (*frame.Stored, error) {
	h, err := frame.DecodeHeader(b)
	if err != nil || !Whole(&h) {
		return nil, err
	}
	s, err := frame.DecodeStored(b, blockLimits(limits))
	if err != nil {
		return nil, err
	}
	return s, checkBlock(&s.Header, blocks, i, log, end)
}

// checkBlock compares a block with the index.
func checkBlock(h *frame.Header, blocks []Block, i int, log fence.ID, end uint64) error {
	if i+1 < len(blocks) {
		end = blocks[i+1].First
	}
	if h.HasCursor {
		return fmt.Errorf("%w: block %d has a cursor", fence.ErrCorrupt, i)
	}
	if h.Kind != frame.Data || h.Log != log || h.Offset != blocks[i].First || h.Offset+uint64(h.Records) != end {
		return fmt.Errorf("%w: block %d holds [%d, %d) of log %s, should be [%d, %d)", fence.ErrCorrupt, i, h.Offset, h.Offset+uint64(h.Records), h.Log, blocks[i].First, end)
	}
	return nil
}
