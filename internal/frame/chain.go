package frame

import (
	"bytes"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
)

// Point is a place between two objects of the chain: the slot of the next object, and the
// sum of all objects before it. The zero Point is none; see [Start].
type Point struct {
	// Position is the slot of the next object.
	Position fence.Position `json:"position"`
	// Offset is the number of records before it, so the next record's offset.
	Offset uint64 `json:"offset"`
	// Cursor is the producer's last committed cursor; empty if there is none.
	Cursor []byte `json:"cursor,omitempty"`
	// Prev is the Checksum of the object before it, 0 at the start.
	Prev uint32 `json:"prev"`
}

// Start is the point before the first object.
func Start() Point { return Point{Position: Genesis()} }

// Before reports whether p comes before q on the chain.
func (p Point) Before(q Point) bool { return p.Position.Before(q.Position) }

// Equal reports whether p and q are the same point with the same past.
func (p Point) Equal(q Point) bool {
	return p.Position == q.Position && p.Offset == q.Offset && p.Prev == q.Prev && bytes.Equal(p.Cursor, q.Cursor)
}

// Valid reports whether p can be a point of a chain at all.
func (p Point) Valid() bool { return p.Position.Seq > 0 }

// Next is the chain rule: it returns the point after f, the object in slot p.Position of
// the log. The error is [fence.ErrCorrupt] if f cannot be there: it belongs to another log
// or another slot, or does not follow the object before it.
func (p Point) Next(log fence.ID, f *Frame) (Point, error) {
	if err := p.accepts(log, &f.Header); err != nil {
		return p, fmt.Errorf("%s: %w", layout.DataKey(p.Position), err)
	}
	return p.After(&f.Header, f.Cursor), nil
}

// After returns the point after an object that the caller has encoded itself for slot
// p.Position. It checks nothing.
func (p Point) After(h *Header, cursor []byte) Point {
	p.Prev = h.Checksum()
	if h.Kind == Seal {
		p.Position = fence.Position{Epoch: h.Next, Seq: 1}
		return p
	}
	p.Position.Seq++
	p.Offset += uint64(h.Records)
	if h.HasCursor {
		p.Cursor = bytes.Clone(cursor)
	}
	return p
}

func (p Point) accepts(log fence.ID, h *Header) error {
	switch {
	case h.Log != log:
		return corrupt("it belongs to log %s, this is log %s", h.Log, log)
	case h.Position != p.Position:
		return corrupt("it says that it is %s", layout.DataKey(h.Position))
	case h.Kind == Seal:
		return nil
	case h.Offset != p.Offset:
		return corrupt("its first offset is %d, the objects before it end at %d", h.Offset, p.Offset)
	case h.Prev != p.Prev:
		return corrupt("it follows an object with checksum %08x, the one before it has %08x", h.Prev, p.Prev)
	}
	return nil
}

// Genesis is where every chain starts.
func Genesis() fence.Position { return fence.Position{Epoch: 0, Seq: 1} }
