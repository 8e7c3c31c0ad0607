package fence

import (
	"encoding/hex"
	"fmt"
)

// ID is 128 random bits: the identity of a log, the nonce of one write.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes 32 hexadecimal digits.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 hexadecimal digits.
func (id *ID) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(id)) {
		return fmt.Errorf("%w: an id has %d hexadecimal digits, not %d", ErrCorrupt, hex.EncodedLen(len(id)), len(b))
	}
	var v ID
	if _, err := hex.Decode(v[:], b); err != nil {
		return fmt.Errorf("%w: id %q: %w", ErrCorrupt, b, err)
	}
	*id = v
	return nil
}
