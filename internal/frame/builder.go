package frame

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/fencepost/fencepost/fence"
)

// Builder puts the frame of a data object or an edit together. Once its buffer has grown
// to the size of its frames, it copies each record once, to where it stays. The zero
// Builder is ready; Reset makes it empty again and keeps the buffer. It checks no limits:
// the caller does, so that no payload exceeds [fence.MaxObject]. It is not safe for
// concurrent use.
type Builder struct {
	buf       []byte // room for the header, then the payload
	packed    []byte
	cursor    []byte
	hasCursor bool
	edit      bool
	records   uint32
	// The first summed bytes of buf after the header have the checksum crc.
	summed int
	crc    uint32
	// The result of Pack; not ready if something was added since.
	ready   bool
	frame   []byte
	codec   Codec
	stored  int // bytes of the payload in it
	bodyCRC uint32
}

// piece is how many bytes of a record are copied at once. They stay in the processor's
// cache until their checksum is computed, which is then three times as fast.
const piece = 32 << 10

// Reset empties the builder.
func (b *Builder) Reset() {
	*b = Builder{buf: b.buf[:0], packed: b.packed[:0], cursor: b.cursor[:0]}
}

// Add appends a record.
func (b *Builder) Add(record []byte) {
	b.room()
	b.buf = binary.AppendUvarint(b.buf, uint64(len(record)))
	b.records, b.ready = b.records+1, false
	if len(record) <= piece || cap(b.buf)-len(b.buf) < len(record) {
		b.buf = append(b.buf, record...)
		return
	}
	for len(record) > 0 {
		n := min(piece, len(record))
		b.buf = append(b.buf, record[:n]...)
		record = record[n:]
		b.sum()
	}
}

// sum brings the checksum up to the end of buf.
func (b *Builder) sum() {
	b.crc = crc32.Update(b.crc, castagnoli, b.buf[HeaderSize+b.summed:])
	b.summed = len(b.buf) - HeaderSize
}

// SetEdit makes the frame an edit with the given document, which must not be
// empty. Such a frame has no records: none may be added before or after.
func (b *Builder) SetEdit(doc []byte) {
	b.room()
	b.buf, b.summed, b.crc = append(b.buf[:HeaderSize], doc...), 0, 0
	b.edit, b.ready = true, false
}

// SetCursor sets the cursor, which replaces any before it.
func (b *Builder) SetCursor(cursor []byte) {
	b.cursor = append(b.cursor[:0], cursor...)
	b.hasCursor, b.ready = true, false
}

// Empty reports whether there is neither a record nor an edit nor a cursor.
func (b *Builder) Empty() bool { return b.records == 0 && !b.edit && !b.hasCursor }

// IsEdit reports whether the frame is an edit.
func (b *Builder) IsEdit() bool { return b.edit }

// Cursor returns the cursor that was set.
func (b *Builder) Cursor() []byte { return b.cursor }

// Records is how many records were added.
func (b *Builder) Records() int { return int(b.records) }

// Size is the length of the payload so far, before compression.
func (b *Builder) Size() int { return max(len(b.buf)-HeaderSize, 0) }

// Lend gives an empty builder memory to use: for the payload, and for the compressed
// payload. Either may be nil.
func (b *Builder) Lend(payload, packed []byte) {
	b.buf, b.packed = payload[:0], packed[:0]
}

// Release empties the builder after Finish or Stamp and returns its memory. The frame lies
// in packed if it is compressed (see h.Codec), else in payload; the other one is free.
func (b *Builder) Release() (payload, packed []byte) {
	payload, packed = b.buf, b.packed
	*b = Builder{}
	return payload, packed
}

func (b *Builder) room() {
	if len(b.buf) < HeaderSize {
		b.buf = append(b.buf[:0], make([]byte, HeaderSize)...)
	}
}

// Finish returns the frame: it is [Builder.Pack], then [Builder.Stamp].
func (b *Builder) Finish(h *Header, codec Codec) []byte {
	b.Pack(codec)
	return b.Stamp(h)
}

// Pack does the work that costs most and needs no header: it compresses the payload, if
// codec says so, and computes the checksum. A payload that Zstandard does not make smaller
// is stored plain. Several builders can pack at once. They are stamped one after the
// other, since each header needs the checksum of the object before it.
func (b *Builder) Pack(codec Codec) {
	b.room()
	out := &b.buf
	b.codec = Plain
	if codec == Zstd {
		b.packed = compress(append(b.packed[:0], b.buf[:HeaderSize]...), b.buf[HeaderSize:])
		if len(b.packed) < len(b.buf) {
			out, b.codec = &b.packed, Zstd
		}
	}
	b.stored = len(*out) - HeaderSize
	b.frame = append(*out, b.cursor...)
	*out = b.frame[:len(b.frame)-len(b.cursor)] // keep the room that the cursor needed
	if b.codec == Plain {
		b.sum()
		b.bodyCRC = crc32.Update(b.crc, castagnoli, b.cursor)
	} else {
		b.bodyCRC = crc32.Checksum(b.frame[HeaderSize:], castagnoli)
	}
	b.ready = true
}

// Stamp returns the frame that Pack has made, with a header. It reads Log, Nonce, Position,
// Offset, Prev and Time from h and fills in the rest; [Decode] returns the same header.
// The frame is valid until the builder is used again. Stamp panics if nothing was packed,
// or if something was added since.
func (b *Builder) Stamp(h *Header) []byte {
	if !b.ready {
		panic("frame: Stamp without Pack")
	}
	h.Kind, h.Codec, h.Next = Data, b.codec, 0
	if b.edit {
		h.Kind = Edit
	}
	h.Records = b.records
	h.HasCursor = b.hasCursor
	h.cursorLen = uint32(len(b.cursor))
	h.rawLen = uint32(len(b.buf) - HeaderSize)
	h.storedLen = uint32(b.stored)
	h.bodyCRC = b.bodyCRC
	h.put(b.frame)
	return b.frame
}

// EncodeSeal returns the frame of a seal that ends the epoch of h.Position and names the
// next one, which must be later. It reads Log, Nonce, Position and Time from h and fills
// in the rest. A seal has no offset and no checksum of the object before it: an opener
// that cannot outrun a leader puts the same seal on many slots at once.
func EncodeSeal(h *Header, next fence.Epoch) []byte {
	*h = Header{Kind: Seal, Log: h.Log, Nonce: h.Nonce, Position: h.Position, Time: h.Time, Next: next}
	frame := make([]byte, HeaderSize)
	h.put(frame)
	return frame
}
