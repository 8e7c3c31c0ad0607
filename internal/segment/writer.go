package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
)

// BlockSize is how large a block grows before compression, in bytes. A record that is
// larger has a block of its own.
const BlockSize = 1 << 20

// Writer writes a segment to an io.Writer. It keeps one block and the index in memory.
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

// Add appends the records of a frame, of the chain or of another segment. They must
// follow the records before without a gap.
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

// Whole reports whether a frame can stay as it is: its records are enough for a block of
// their own, and not too many for one.
func Whole(h *frame.Header) bool {
	n := h.PayloadLen()
	return n >= BlockSize/2 && (n <= BlockSize || h.Records == 1)
}

// AddStored appends a frame of data as a block of its own, without compressing it again.
// Its records must follow those before without a gap. It returns false if the block would
// be too small: then the caller has to Add the records.
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

// writable returns the nearest time that JSON can hold. A writer's clock may say
// anything, and a manifest that cannot be encoded would end compaction for ever.
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

// Records is the number of records that were added.
func (w *Writer) Records() uint64 { return w.next - w.first }

// Size is the number of bytes that were written, or wait in the block or the index.
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
