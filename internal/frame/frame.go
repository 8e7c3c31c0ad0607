package frame

import (
	"encoding/binary"
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
