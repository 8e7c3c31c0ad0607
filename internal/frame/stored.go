package frame

import (
	"hash/crc32"

	"github.com/fencepost/fencepost/fence"
)

// Stored is a log object that is checked by its checksums and not unpacked: enough
// to put its payload elsewhere as it is.
type Stored struct {
	Header
	// Cursor is that of the object. It is a slice of the stored bytes.
	Cursor  []byte
	payload []byte // as stored
}

// DecodeStored is [Decode] without what is inside: whether a payload decompresses,
// and to whole records, it does not tell. Stored keeps b, which must not change.
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

// Repack returns the header of a frame that has this payload, and no cursor, and the
// payload itself, which must not be changed. Of h it takes Log, Nonce, Position,
// Offset, Prev and Time, and it completes h, like [Builder.Finish].
func (s *Stored) Repack(h *Header) (header, payload []byte) {
	h.Kind, h.Codec, h.Next = s.Kind, s.Codec, 0
	h.Records, h.HasCursor, h.cursorLen = s.Records, false, 0
	h.storedLen, h.rawLen = s.storedLen, s.rawLen
	h.bodyCRC = s.bodyCRC // which has been checked
	if s.HasCursor {
		h.bodyCRC = crc32.Checksum(s.payload, castagnoli)
	}
	header = make([]byte, HeaderSize)
	h.put(header)
	return header, s.payload
}
