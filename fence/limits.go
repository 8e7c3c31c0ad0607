package fence

// The greatest possible [Limits], in bytes. A 32-bit machine can decode an object of
// MaxObject.
const (
	MaxObject   = 1 << 30
	MaxCursor   = 1 << 20
	MaxManifest = 64 << 20
)

// Limits bound, in bytes, what a log accepts and what decoding allocates.
type Limits struct {
	// Object bounds the payload of an object before compression.
	Object int64 `json:"object"`
	// Record bounds one record.
	Record int64 `json:"record"`
	// Cursor bounds a cursor.
	Cursor int64 `json:"cursor"`
	// Manifest bounds a manifest: at most [MaxManifest], and at least 256 KiB and two
	// cursors in base64.
	Manifest int64 `json:"manifest"`
}

// DefaultLimits are 64 MiB an object, 16 MiB a record, 4 KiB a cursor, 8 MiB a manifest.
func DefaultLimits() Limits {
	return Limits{Object: 64 << 20, Record: 16 << 20, Cursor: 4 << 10, Manifest: 8 << 20}
}
