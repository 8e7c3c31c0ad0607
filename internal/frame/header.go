package frame

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/fencepost/fencepost/fence"
)

// Kind says what a log object is.
type Kind uint8

const (
	// Data holds records of the leader of its epoch.
	Data Kind = 1
	// Seal ends its epoch and names the next one. A successor writes it.
	Seal Kind = 2
	// Edit holds a change of the log's table of files, by the leader of its epoch. It has
	// no records. Package state reads its document.
	Edit Kind = 3
)

func (k Kind) String() string {
	switch k {
	case Data:
		return "data"
	case Seal:
		return "seal"
	case Edit:
		return "edit"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Codec says how a payload is stored.
type Codec uint8

const (
	// Plain payloads are stored as they are.
	Plain Codec = 0
	// Zstd payloads are one Zstandard frame.
	Zstd Codec = 1
)

// HeaderSize is the length of a frame's header in bytes. The header has the nonce, so the
// first HeaderSize bytes of a frame differ from those of every other frame.
const HeaderSize = 128

const (
	magic   = "FNCP"
	version = 1

	flagCursor = 1 << 0
	flagsKnown = flagCursor
)

// Header is what every log object begins with. docs/format.md has the layout.
type Header struct {
	Kind     Kind
	Codec    Codec
	Log      fence.ID // identity of the log; a frame copied from another log is corrupt
	Nonce    fence.ID // random for every write
	Position fence.Position
	Offset   uint64 // of the first record
	Records  uint32
	Prev     uint32      // Checksum of the object before it on the chain; 0 in seals
	Time     time.Time   // the writer's wall clock, microseconds; for people and retention
	Next     fence.Epoch // of a seal: the epoch that goes on

	// Set by the encoder.
	HasCursor bool
	cursorLen uint32
	storedLen uint32 // payload as stored
	rawLen    uint32 // payload before compression
	bodyCRC   uint32
	checksum  uint32
}

// Checksum is the CRC-32C of the header, which covers that of the body. The
// next object on the chain repeats it.
func (h *Header) Checksum() uint32 { return h.checksum }

// BodyLen is how many bytes follow the header.
func (h *Header) BodyLen() int64 { return int64(h.storedLen) + int64(h.cursorLen) }

// PayloadLen is the length of the payload before compression: the records with
// their length prefixes, or the document.
func (h *Header) PayloadLen() int { return int(h.rawLen) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h *Header) put(b []byte) {
	_ = b[HeaderSize-1]
	clear(b[:HeaderSize])
	le := binary.LittleEndian
	copy(b[0:4], magic)
	b[4] = version
	b[5] = byte(h.Kind)
	b[6] = byte(h.Codec)
	if h.HasCursor {
		b[7] |= flagCursor
	}
	copy(b[8:24], h.Log[:])
	copy(b[24:40], h.Nonce[:])
	le.PutUint64(b[40:], uint64(h.Position.Epoch))
	le.PutUint64(b[48:], h.Position.Seq)
	le.PutUint64(b[56:], h.Offset)
	le.PutUint32(b[64:], h.Records)
	le.PutUint32(b[68:], h.Prev)
	h.Time = time.UnixMicro(h.Time.UnixMicro()).UTC() // as a reader has it
	le.PutUint64(b[72:], uint64(h.Time.UnixMicro()))
	le.PutUint32(b[80:], h.cursorLen)
	le.PutUint32(b[84:], h.storedLen)
	le.PutUint32(b[88:], h.rawLen)
	le.PutUint32(b[92:], h.bodyCRC)
	le.PutUint64(b[96:], uint64(h.Next))
	h.checksum = crc32.Checksum(b[:HeaderSize-4], castagnoli)
	le.PutUint32(b[HeaderSize-4:], h.checksum)
}

// DecodeHeader reads the header of a frame from its first bytes and checks all that can be
// checked without the body. Errors: [fence.ErrCorrupt], [fence.ErrFormat]; the header then
// holds what could be read, for people.
func DecodeHeader(b []byte) (Header, error) {
	var h Header
	if len(b) < HeaderSize {
		return h, corrupt("%d bytes are too short for a header of %d", len(b), HeaderSize)
	}
	le := binary.LittleEndian
	if string(b[:4]) != magic {
		return h, corrupt("it does not begin with %q", magic)
	}
	// The checksum is checked before the version, and is at the same place in all versions.
	// Otherwise a damaged version byte would be reported as a newer version.
	h.checksum = le.Uint32(b[HeaderSize-4:])
	if sum := crc32.Checksum(b[:HeaderSize-4], castagnoli); sum != h.checksum {
		return h, corrupt("header checksum is %08x, the header says %08x", sum, h.checksum)
	}
	if b[4] != version {
		return h, future("frame version %d, this program knows %d", b[4], version)
	}
	h.Kind, h.Codec = Kind(b[5]), Codec(b[6])
	h.HasCursor = b[7]&flagCursor != 0
	copy(h.Log[:], b[8:24])
	copy(h.Nonce[:], b[24:40])
	h.Position = fence.Position{Epoch: fence.Epoch(le.Uint64(b[40:])), Seq: le.Uint64(b[48:])}
	h.Offset = le.Uint64(b[56:])
	h.Records = le.Uint32(b[64:])
	h.Prev = le.Uint32(b[68:])
	h.Time = time.UnixMicro(int64(le.Uint64(b[72:]))).UTC()
	h.cursorLen = le.Uint32(b[80:])
	h.storedLen = le.Uint32(b[84:])
	h.rawLen = le.Uint32(b[88:])
	h.bodyCRC = le.Uint32(b[92:])
	h.Next = fence.Epoch(le.Uint64(b[96:]))
	if unknown := b[7] &^ flagsKnown; unknown != 0 {
		return h, future("frame flags %08b", unknown)
	}
	return h, h.check()
}

func (h *Header) check() error {
	switch {
	case h.Kind != Data && h.Kind != Seal && h.Kind != Edit:
		return future("object %v", h.Kind)
	case h.Codec != Plain && h.Codec != Zstd:
		return future("codec %d", h.Codec)
	case h.Position.Seq == 0 || h.Position.Seq == math.MaxUint64:
		return corrupt("sequence number %d", h.Position.Seq) // the last has no next
	case h.Kind == Seal:
		return h.checkSeal()
	}
	return h.checkData()
}

func (h *Header) checkSeal() error {
	switch {
	case h.Next <= h.Position.Epoch:
		return corrupt("a seal in epoch %d names epoch %d, which is not later", h.Position.Epoch, h.Next)
	case h.Records != 0 || h.BodyLen() != 0 || h.rawLen != 0 || h.HasCursor || h.Codec != Plain:
		return corrupt("a seal with a body")
	case h.Offset != 0 || h.Prev != 0:
		return corrupt("a seal with an offset or a previous checksum")
	}
	return nil
}

func (h *Header) checkData() error {
	switch {
	case h.Position.Epoch == 0:
		return corrupt("%v in epoch 0, which nobody leads", h.Kind)
	case h.Next != 0:
		return corrupt("%v that names a next epoch", h.Kind)
	case h.Codec == Plain && h.rawLen != h.storedLen:
		return corrupt("a plain payload of %d bytes is stored in %d", h.rawLen, h.storedLen)
	case h.Codec == Zstd && h.rawLen <= h.storedLen:
		return corrupt("a compressed payload of %d bytes is stored in %d", h.rawLen, h.storedLen)
	case !h.HasCursor && h.cursorLen != 0:
		return corrupt("a cursor of %d bytes without its flag", h.cursorLen)
	case h.Records > h.rawLen:
		return corrupt("%d records in %d bytes", h.Records, h.rawLen)
	case h.Offset+uint64(h.Records) < h.Offset:
		return corrupt("offset overflows")
	case h.Kind == Edit && (h.Records != 0 || h.rawLen == 0):
		return corrupt("an edit with %d records and a document of %d bytes", h.Records, h.rawLen)
	}
	return nil
}
