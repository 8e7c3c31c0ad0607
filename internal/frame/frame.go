package frame

import (
	"encoding/binary"
	"iter"

	"github.com/fencepost/fencepost/fence"
)

// Frame is a decoded log object.
type Frame struct {
	Header
	// Cursor is the producer's cursor, if HasCursor; an empty one takes back what
	// was set before.
	Cursor  []byte
	payload []byte
	stored  []byte // the payload before it was decompressed
}

// Decode reads a whole frame and checks everything that can be checked without
// its neighbours: checksums, lengths, the records' lengths. The frame keeps b,
// which must not change. Decode allocates no more than the payload if that is
// compressed, next to nothing otherwise, and for no claim of a hostile frame more
// than 3 times limits.Object; the decompressors' own buffers are made once. Errors: [ErrCorrupt], [ErrFormat], [ErrLimit].
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
		return corrupt("%d bytes behind the last record", len(rest))
	}
	return nil
}

// All yields the records with their offsets. They are slices of the frame's own
// memory.
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

// Edit returns the document of an edit, nil of other kinds. It is the frame's own
// memory.
func (f *Frame) Edit() []byte {
	if f.Kind != Edit {
		return nil
	}
	return f.payload
}
