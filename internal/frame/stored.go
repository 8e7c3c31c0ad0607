package frame

import (
	"hash/crc32"

	"github.com/fencepost/fencepost/fence"
)

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
