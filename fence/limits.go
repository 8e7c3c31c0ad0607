package fence

import (
	"encoding/binary"
	"fmt"
)

// The greatest possible [Limits], in bytes. A 32-bit machine can decode an object of
// MaxObject.
const (
	MaxObject = 1 << 30
	MaxCursor = 1 << 20
)

// Limits bound, in bytes, what a log accepts and what decoding allocates.
type Limits struct {
	// Object bounds the payload of an object before compression.
	Object int `json:"object"`
	// Record bounds one record.
	Record int `json:"record"`
	// Cursor bounds a cursor.
	Cursor int `json:"cursor"`
}

// DefaultLimits are 64 MiB an object, 16 MiB a record, 4 KiB a cursor.
func DefaultLimits() Limits { return Limits{Object: 64 << 20, Record: 16 << 20, Cursor: 4 << 10} }

// Validate returns an error that is [ErrLimit] if no log can have these limits.
func (l Limits) Validate() error {
	prefix := len(binary.AppendUvarint(nil, uint64(max(l.Record, 0))))
	switch {
	case l.Object < 1 || l.Object > MaxObject:
		return fmt.Errorf("%w: objects of %d bytes; possible are 1 to %d", ErrLimit, l.Object, MaxObject)
	case l.Record < 0 || l.Record > l.Object-prefix:
		return fmt.Errorf("%w: a record of %d bytes does not fit into an object of %d, where its length takes %d bytes more",
			ErrLimit, l.Record, l.Object, prefix)
	case l.Cursor < 0 || l.Cursor > MaxCursor:
		return fmt.Errorf("%w: cursors of %d bytes; possible are 0 to %d", ErrLimit, l.Cursor, MaxCursor)
	}
	return nil
}
