package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// Cursor says how much of a source is in a log. It is stored with the records, as JSON:
//
//	{"source":"/var/log/orders","format":"lines","offset":4711,"crc32c":2768354128}
type Cursor struct {
	// Source names the input.
	Source string `json:"source"`
	// Format is how the source is cut into records.
	Format Format `json:"format"`
	// Offset is how many bytes of the source are in the log, and Sum their CRC-32C.
	Offset int64  `json:"offset"`
	Sum    uint32 `json:"crc32c"`
}

var (
	// ErrSource: the cursor in the log is that of another source.
	ErrSource = errors.New("another source")
	// ErrChanged: the source is not what it was when its beginning was appended.
	ErrChanged = errors.New("the source has changed")
)

func (c Cursor) encode() []byte {
	b, _ := json.Marshal(c) //nolint:errchkjson // strings and numbers: it cannot fail
	return b
}

// DecodeCursor decodes the cursor of a log. It returns false if another program has written
// it.
func DecodeCursor(b []byte) (Cursor, bool) {
	var c Cursor
	if json.Unmarshal(b, &c) != nil || c.Source == "" || c.Offset < 0 || (c.Format != Lines && c.Format != Frames) {
		return Cursor{}, false
	}
	return c, true
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// check returns the cursor of a log if it is one of this source.
func (c Cursor) check(recovered []byte) (Cursor, error) {
	if len(recovered) == 0 {
		return Cursor{Source: c.Source, Format: c.Format}, nil
	}
	was, ok := DecodeCursor(recovered)
	switch {
	case !ok:
		return was, fmt.Errorf("%w: the log has a cursor that another program has set, %q; append without --cursor, or to another log", ErrSource, clip(recovered))
	case was.Source != c.Source:
		return was, fmt.Errorf("%w: the log is at byte %d of source %q, and this is %q; if it is the same data under another name, say --source %q; otherwise append without --cursor, or to another log",
			ErrSource, was.Offset, was.Source, c.Source, was.Source)
	case was.Format != c.Format:
		return was, fmt.Errorf("%w: %q was appended with --format %s; go on with that", ErrSource, c.Source, was.Format)
	}
	return was, nil
}

func clip(b []byte) []byte {
	const most = 80
	if len(b) > most {
		return append(b[:most:most], "…"...)
	}
	return b
}
