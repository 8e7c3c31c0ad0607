package layout

import (
	"encoding/binary"
	"fmt"

	"github.com/fencepost/fencepost/fence"
)

// leastRoom is how many bytes a manifest has at least beside its cursors. Each of five
// lists may take an eighth of them, and so may the properties; the rest is for the names
// of pages.
const leastRoom = 256 << 10

// CheckLimits returns an error that is [fence.ErrLimit] if no log can have these limits.
func CheckLimits(l fence.Limits) error {
	// Floor and hint hold a cursor each, in base64. A manifest needs room for both beside
	// its properties and lists; without it no compaction could ever be published.
	cursors := 2 * Base64(max(l.Cursor, 0))
	prefix := int64(len(binary.AppendUvarint(nil, uint64(max(l.Record, 0)))))
	switch {
	case l.Object < 1 || l.Object > fence.MaxObject:
		return fmt.Errorf("%w: objects of %d bytes; possible are 1 to %d", fence.ErrLimit, l.Object, fence.MaxObject)
	case l.Record < 0 || l.Record > l.Object-prefix:
		return fmt.Errorf("%w: a record of %d bytes does not fit into an object of %d, where its length takes %d bytes more",
			fence.ErrLimit, l.Record, l.Object, prefix)
	case l.Cursor < 0 || l.Cursor > fence.MaxCursor:
		return fmt.Errorf("%w: cursors of %d bytes; possible are 0 to %d", fence.ErrLimit, l.Cursor, fence.MaxCursor)
	case l.Manifest < leastRoom+cursors || l.Manifest > fence.MaxManifest:
		return fmt.Errorf("%w: manifests of %d bytes; possible are %d (%d for lists and properties, %d for two cursors of %d in base64) to %d",
			fence.ErrLimit, l.Manifest, leastRoom+cursors, leastRoom, cursors, l.Cursor, fence.MaxManifest)
	}
	return nil
}

// Base64 is how many bytes n bytes have in base64.
func Base64(n int64) int64 { return (n + 2) / 3 * 4 }
