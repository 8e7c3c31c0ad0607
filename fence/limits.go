package fence

import "fmt"

// What [Limits] may be at most, in bytes. A decoder on a 32-bit machine can hold
// an object of MaxObject.
const (
	MaxObject = 1 << 30
	MaxCursor = 1 << 20
)

// Limits bound what a log accepts and what a decoder will allocate, in bytes.
type Limits struct {
	// Object bounds a frame's payload before compression, and the frame.
	Object int `json:"object"`
	// Record bounds one record.
	Record int `json:"record"`
	// Cursor bounds a cursor.
	Cursor int `json:"cursor"`
}

// DefaultLimits are 64 MiB an object, 16 MiB a record, 4 KiB a cursor.
var DefaultLimits = Limits{Object: 64 << 20, Record: 16 << 20, Cursor: 4 << 10}

// Validate returns an error that is [ErrLimit] if no log can have these limits.
func (l Limits) Validate() error {
	switch {
	case l.Object < 1 || l.Object > MaxObject:
		return fmt.Errorf("%w: objects of %d bytes; possible are 1 to %d", ErrLimit, l.Object, MaxObject)
	case l.Record < 0 || l.Record > l.Object || RecordSize(l.Record) > l.Object:
		return fmt.Errorf("%w: a record of %d bytes does not fit into an object of %d, where its length takes %d bytes more",
			ErrLimit, l.Record, l.Object, prefixSize(l.Record))
	case l.Cursor < 0 || l.Cursor > MaxCursor:
		return fmt.Errorf("%w: cursors of %d bytes; possible are 0 to %d", ErrLimit, l.Cursor, MaxCursor)
	}
	return nil
}

// MaxFrame is the length of the longest frame.
func (l Limits) MaxFrame() int64 { return HeaderSize + int64(l.Object) + int64(l.Cursor) }

// CheckRecord returns an error that is [ErrLimit] if a record of n bytes is too
// large.
func (l Limits) CheckRecord(n int) error {
	if n > l.Record {
		return fmt.Errorf("%w: a record of %d bytes; the log allows %d", ErrLimit, n, l.Record)
	}
	return nil
}

// CheckCursor returns an error that is [ErrLimit] if a cursor of n bytes is too
// large.
func (l Limits) CheckCursor(n int) error {
	if n > l.Cursor {
		return fmt.Errorf("%w: a cursor of %d bytes; the log allows %d", ErrLimit, n, l.Cursor)
	}
	return nil
}

func (l Limits) checkHeader(h *Header) error {
	// Compared as int64: on a 32-bit machine an int may not hold the claim.
	switch {
	case int64(h.rawLen) > int64(l.Object):
		return fmt.Errorf("%w: a payload of %d bytes; the log allows %d", ErrLimit, h.rawLen, l.Object)
	case int64(h.cursorLen) > int64(l.Cursor):
		return fmt.Errorf("%w: a cursor of %d bytes; the log allows %d", ErrLimit, h.cursorLen, l.Cursor)
	}
	return nil
}

// RecordSize is how many bytes a record of n bytes takes in a payload.
func RecordSize(n int) int { return prefixSize(n) + n }

// prefixSize is the length of n as a uvarint.
func prefixSize(n int) int {
	size := 1
	for v := uint64(n); v >= 0x80; v >>= 7 {
		size++
	}
	return size
}
