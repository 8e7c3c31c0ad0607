// Package segment reads and writes segments: compacted runs of the log.
//
// A segment is a row of blocks, an index and a trailer. Each block is a data
// frame of package fence, with records regrouped to a useful size; the index
// says where each block is and which offset it begins with, so that any record
// of a segment of any size is found with two requests. docs/format.md has the
// layout.
package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"sort"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

const (
	magic       = "FNSG"
	version     = 1
	entrySize   = 32
	trailerSize = 64
	// BlockSize is how large a block grows before compression. A record that is
	// larger has a block of its own.
	BlockSize = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Block is an entry of the index.
type Block struct {
	At     int64 // place in the segment
	Len    int64
	First  uint64 // offset of its first record
	Latest time.Time
}

// Writer writes a segment to an io.Writer as it comes. It holds one block and
// the index.
type Writer struct {
	w       io.Writer
	log     fence.ID
	codec   frame.Codec
	builder frame.Builder
	pos     fence.Position // of the first record in the block
	first   uint64         // of the segment
	next    uint64
	start   uint64 // of the block
	at      int64
	prev    uint32
	from    time.Time
	to      time.Time
	latest  time.Time // in the block
	index   []Block
	err     error
}

// NewWriter begins a segment whose first record has offset first.
func NewWriter(w io.Writer, log fence.ID, first uint64, codec frame.Codec) *Writer {
	return &Writer{w: w, log: log, codec: codec, first: first, next: first, start: first}
}

// Add appends the records of a frame of the chain or of another segment, which
// must follow those before without a gap.
func (w *Writer) Add(f *frame.Frame) error {
	if w.err != nil {
		return w.err
	}
	at := writable(f.Time)
	for off, rec := range f.All() {
		if off < w.next {
			continue // a block may begin before the run
		}
		if off != w.next {
			w.err = fmt.Errorf("segment: record %d follows record %d", off, w.next-1)
			return w.err
		}
		if n := w.builder.Size(); n > 0 && n+frame.RecordSize(len(rec)) > BlockSize {
			if err := w.flush(); err != nil {
				return err
			}
		}
		if w.builder.Records() == 0 {
			w.pos = f.Position
		}
		w.builder.Add(rec)
		w.next++
		if w.Records() == 1 || at.Before(w.from) {
			w.from = at
		}
		if at.After(w.to) {
			w.to = at
		}
		if at.After(w.latest) {
			w.latest = at
		}
	}
	return nil
}

// Whole tells whether the records of a frame are enough to stay as they are, as a block
// of their own, and no more than a block has.
func Whole(h *frame.Header) bool {
	n := h.PayloadLen()
	return n >= BlockSize/2 && (n <= BlockSize || h.Records == 1)
}

// AddStored appends the records of a frame of data as it is stored, as a block of
// its own, without compressing it again; it must follow what is before without a gap.
// It reports whether it did. If not, since the block would be small, the caller adds
// the records.
func (w *Writer) AddStored(s *frame.Stored) (bool, error) {
	if w.err != nil {
		return false, w.err
	}
	if !Whole(&s.Header) || s.Offset != w.next {
		return false, nil
	}
	if w.builder.Records() > 0 {
		if err := w.flush(); err != nil {
			return false, err
		}
	}
	if err := w.room(); err != nil {
		return false, err
	}
	at := writable(s.Time)
	h := frame.Header{Log: w.log, Nonce: fence.ID(uuid.New()), Position: s.Position, Offset: s.Offset, Prev: w.prev, Time: at}
	header, payload := s.Repack(&h)
	w.index = append(w.index, Block{At: w.at, Len: int64(len(header) + len(payload)), First: s.Offset, Latest: at})
	if w.Records() == 0 || at.Before(w.from) {
		w.from = at
	}
	if at.After(w.to) {
		w.to = at
	}
	w.next += uint64(s.Records)
	w.prev, w.start = h.Checksum(), w.next
	if err := w.write(header); err != nil {
		return false, err
	}
	return true, w.write(payload)
}

// writable returns the nearest time that JSON can hold: a writer's clock may say
// anything, and a manifest that cannot be written would end compaction for ever.
func writable(t time.Time) time.Time {
	switch {
	case t.Before(minTime):
		return minTime
	case t.After(maxTime):
		return maxTime
	}
	return t
}

var (
	minTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	maxTime = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

func (w *Writer) flush() error {
	if err := w.room(); err != nil {
		return err
	}
	h := frame.Header{
		Log: w.log, Nonce: fence.ID(uuid.New()), Position: w.pos, Offset: w.start, Prev: w.prev, Time: w.latest,
	}
	b := w.builder.Finish(&h, w.codec)
	w.index = append(w.index, Block{At: w.at, Len: int64(len(b)), First: w.start, Latest: w.latest})
	w.prev, w.start, w.latest = h.Checksum(), w.next, time.Time{}
	err := w.write(b)
	w.builder.Reset()
	return err
}

// room checks that there may be one more block.
func (w *Writer) room() error {
	if len(w.index) == maxBlocks {
		w.err = fmt.Errorf("segment: more than %d blocks in %d bytes, which no reader would accept; make segments smaller", maxBlocks, w.at)
	}
	return w.err
}

func (w *Writer) write(b []byte) error {
	n, err := w.w.Write(b)
	w.at += int64(n)
	w.err = err
	return err
}

// Records is how many records were added.
func (w *Writer) Records() uint64 { return w.next - w.first }

// Size is how many bytes were written or wait in the block or in the index.
func (w *Writer) Size() int64 {
	return w.at + int64(w.builder.Size()) + int64(len(w.index)*entrySize)
}

// Summary describes a finished segment.
type Summary struct {
	First, End  uint64
	Size, Index int64
	From, To    time.Time
}

// Close writes the last block, the index and the trailer. An empty segment is an
// error.
func (w *Writer) Close() (Summary, error) {
	if w.err == nil && w.builder.Records() > 0 {
		_ = w.flush() // kept in w.err
	}
	if w.err != nil {
		return Summary{}, w.err
	}
	if len(w.index) == 0 {
		w.err = fmt.Errorf("segment: no records")
		return Summary{}, w.err
	}
	le := binary.LittleEndian
	tail := make([]byte, 0, len(w.index)*entrySize+trailerSize)
	for _, b := range w.index {
		tail = le.AppendUint64(tail, uint64(b.At))
		tail = le.AppendUint64(tail, uint64(b.Len))
		tail = le.AppendUint64(tail, b.First)
		tail = le.AppendUint64(tail, uint64(b.Latest.UnixMicro()))
	}
	tail = append(tail, w.log[:]...)
	tail = le.AppendUint64(tail, w.first)
	tail = le.AppendUint64(tail, w.next)
	tail = le.AppendUint64(tail, uint64(w.at))
	tail = le.AppendUint32(tail, uint32(len(w.index)))
	tail = append(tail, make([]byte, 8)...)
	tail = append(tail, version, 0, 0, 0)
	tail = append(tail, magic...)
	tail = le.AppendUint32(tail, crc32.Checksum(tail, castagnoli))
	if err := w.write(tail); err != nil {
		return Summary{}, err
	}
	w.err = fmt.Errorf("segment: closed")
	return Summary{First: w.first, End: w.next, Size: w.at, Index: int64(len(tail)), From: w.from, To: w.to}, nil
}

// DecodeIndex reads the index and trailer: the last bytes of a segment of the
// given size, all of those if tail is as long as Summary.Index says. Errors are
// fence.ErrCorrupt and fence.ErrFormat.
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
	// The checksum comes before the version, and has its place in all versions:
	// otherwise a damaged version byte would tell people to upgrade.
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

// Find returns the number of the block that holds the record at offset, which
// must not be before the first block.
func Find(blocks []Block, offset uint64) int {
	return sort.Search(len(blocks), func(i int) bool { return blocks[i].First > offset }) - 1
}

// blockLimits are those of a block: it may gather more than an object of the log
// could hold.
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

// decodeWhole is DecodeBlock of a block that stays as it is; nil of others.
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
	if h.Kind != frame.Data || h.Log != log || h.Offset != blocks[i].First || h.Offset+uint64(h.Records) != end {
		return fmt.Errorf("%w: block %d holds [%d, %d) of log %s, should be [%d, %d)", fence.ErrCorrupt, i, h.Offset, h.Offset+uint64(h.Records), h.Log, blocks[i].First, end)
	}
	return nil
}
