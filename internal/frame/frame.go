package frame

import (
	"encoding/binary"
	"hash/crc32"
	"iter"

	"github.com/fencepost/fencepost/fence"
)

// Frame is a decoded log object.
type Frame struct {
	Header
	// Cursor is the producer's cursor, if HasCursor. An empty one clears the cursor that
	// was set before.
	Cursor  []byte
	payload []byte
	stored  []byte // the payload before it was decompressed
}

// Decode reads a whole frame and checks all that can be checked without its neighbours:
// checksums, lengths, the lengths of the records. The frame refers to b, which must not
// change. Decode allocates the payload if it is compressed, and next to nothing otherwise.
// Whatever a hostile frame claims, it allocates at most 3 times limits.Object. Errors:
// [fence.ErrCorrupt], [fence.ErrFormat], [fence.ErrLimit].
func Decode(b []byte, limits fence.Limits) (*Frame, error) {
	s, err := DecodeStored(b, limits)
	if err != nil {
		return nil, err
	}
	h := s.Header
	f := &Frame{Header: h, Cursor: s.Cursor, payload: s.payload, stored: s.payload}
	if h.Codec == Zstd {
		if f.payload, err = decompress(s.payload, int(h.rawLen)); err != nil {
			return nil, err
		}
	}
	if err := f.checkRecords(limits); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *Frame) checkRecords(limits fence.Limits) error {
	if f.Kind == Edit {
		return nil // its payload is a document
	}
	rest := f.payload
	for i := range f.Header.Records {
		n, used := binary.Uvarint(rest)
		if used <= 0 || n > uint64(len(rest)-used) {
			return corrupt("record %d of %d reaches past the payload", i, f.Header.Records)
		}
		if err := CheckRecord(limits, int(n)); err != nil {
			return err
		}
		rest = rest[used+int(n):]
	}
	if len(rest) != 0 {
		return corrupt("%d bytes after the last record", len(rest))
	}
	return nil
}

// All yields the records with their offsets. The records share the frame's memory.
func (f *Frame) All() iter.Seq2[uint64, []byte] {
	return func(yield func(uint64, []byte) bool) {
		rest := f.payload
		for i := range uint64(f.Header.Records) {
			n, used := binary.Uvarint(rest)
			end := used + int(n)
			if !yield(f.Offset+i, rest[used:end:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// Edit returns the document of an edit, nil for other kinds. It shares the frame's memory.
func (f *Frame) Edit() []byte {
	if f.Kind != Edit {
		return nil
	}
	return f.payload
}

// Stored is a log object whose checksums were checked and whose payload was not
// decompressed. That is enough to copy the payload elsewhere as it is.
type Stored struct {
	Header
	// Cursor is the object's. It shares the memory of the stored bytes.
	Cursor  []byte
	payload []byte // as stored
}

// DecodeStored is [Decode] without decompression: it does not check that the payload
// decompresses, nor that it has whole records. Stored refers to b, which must not change.
func DecodeStored(b []byte, limits fence.Limits) (*Stored, error) {
	h, err := DecodeHeader(b)
	if err != nil {
		return nil, err
	}
	if err := checkHeader(limits, &h); err != nil {
		return nil, err
	}
	body := b[HeaderSize:]
	if int64(len(body)) != h.BodyLen() {
		return nil, corrupt("the body has %d bytes, the header says %d", len(body), h.BodyLen())
	}
	if sum := crc32.Checksum(body, castagnoli); sum != h.bodyCRC {
		return nil, corrupt("body checksum is %08x, the header says %08x", sum, h.bodyCRC)
	}
	s := &Stored{Header: h, payload: body[:h.storedLen]}
	if h.HasCursor {
		s.Cursor = body[h.storedLen:len(body):len(body)]
	}
	return s, nil
}

// Stored returns the frame as it was before it was unpacked. It shares the frame's
// memory.
func (f *Frame) Stored() *Stored {
	return &Stored{Header: f.Header, Cursor: f.Cursor, payload: f.stored}
}

// Repack returns the header of a frame with this payload and no cursor, and the payload,
// which must not be changed. It reads Log, Nonce, Position, Offset, Prev and Time from h
// and fills in the rest, like [Builder.Stamp].
func (s *Stored) Repack(h *Header) (header, payload []byte) {
	h.Kind, h.Codec, h.Next = s.Kind, s.Codec, 0
	h.Records, h.HasCursor, h.cursorLen = s.Records, false, 0
	h.storedLen, h.rawLen = s.storedLen, s.rawLen
	h.bodyCRC = s.bodyCRC // DecodeStored has checked it
	if s.HasCursor {
		h.bodyCRC = crc32.Checksum(s.payload, castagnoli)
	}
	header = make([]byte, HeaderSize)
	h.put(header)
	return header, s.payload
}
