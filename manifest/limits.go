package manifest

import (
	"encoding/base64"
	"fmt"

	"github.com/fencepost/fencepost/fence"
)

// MaxManifest is the greatest limit of a manifest, in bytes.
const MaxManifest = 64 << 20

// leastRoom is how many bytes a manifest has at least beside its cursors. Each of five
// lists may take an eighth of them, and so may the properties; the rest is for the names
// of pages.
const leastRoom = 256 << 10

// Limits of a log, in bytes.
type Limits struct {
	fence.Limits
	// Manifest bounds a manifest: at most [MaxManifest], and at least 256 KiB and two
	// cursors in base64.
	Manifest int `json:"manifest"`
}

// DefaultLimits are those of package fence, and 8 MiB a manifest.
func DefaultLimits() Limits { return Limits{Limits: fence.DefaultLimits(), Manifest: 8 << 20} }

// Validate returns an error that is [fence.ErrLimit] if no log can have these limits.
func (l Limits) Validate() error {
	if err := l.Limits.Validate(); err != nil {
		return err
	}
	// Floor and hint hold a cursor each, in base64. A manifest needs room for both beside
	// its properties and lists; without it no compaction could ever be published.
	cursors := 2 * base64.StdEncoding.EncodedLen(l.Cursor)
	if least := leastRoom + cursors; l.Manifest < least || l.Manifest > MaxManifest {
		return fmt.Errorf("%w: manifests of %d bytes; possible are %d (%d for lists and properties, %d for two cursors of %d in base64) to %d",
			fence.ErrLimit, l.Manifest, least, leastRoom, cursors, l.Cursor, MaxManifest)
	}
	return nil
}
