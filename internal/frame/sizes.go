package frame

import (
	"fmt"

	"github.com/fencepost/fencepost/fence"
)

// MaxFrame is the length of the longest frame that a log with limits l has, in bytes.
func MaxFrame(l fence.Limits) int64 { return HeaderSize + l.Object + l.Cursor }

// CheckRecord returns an error that is [fence.ErrLimit] if a record of n bytes is too
// large.
func CheckRecord(l fence.Limits, n int) error {
	if int64(n) > l.Record {
		return fmt.Errorf("%w: a record of %d bytes; the log allows %d", fence.ErrLimit, n, l.Record)
	}
	return nil
}

// CheckCursor returns an error that is [fence.ErrLimit] if a cursor of n bytes is too
// large.
func CheckCursor(l fence.Limits, n int) error {
	if int64(n) > l.Cursor {
		return fmt.Errorf("%w: a cursor of %d bytes; the log allows %d", fence.ErrLimit, n, l.Cursor)
	}
	return nil
}

func checkHeader(l fence.Limits, h *Header) error {
	switch {
	case int64(h.rawLen) > l.Object:
		return fmt.Errorf("%w: a payload of %d bytes; the log allows %d", fence.ErrLimit, h.rawLen, l.Object)
	case int64(h.cursorLen) > l.Cursor:
		return fmt.Errorf("%w: a cursor of %d bytes; the log allows %d", fence.ErrLimit, h.cursorLen, l.Cursor)
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
