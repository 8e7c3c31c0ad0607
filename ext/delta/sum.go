package delta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/bits"
)

// sum is a checksum of a set: the hashes of its members added up, modulo 2^128. So it changes
// with a member in no time, whatever the order. It is against damage and foreign hands, not
// against somebody who wants to deceive.
type sum struct{ hi, lo uint64 }

func (s sum) plus(o sum) sum {
	lo, carry := bits.Add64(s.lo, o.lo, 0)
	hi, _ := bits.Add64(s.hi, o.hi, carry)
	return sum{hi, lo}
}

func (s sum) minus(o sum) sum {
	lo, borrow := bits.Sub64(s.lo, o.lo, 0)
	hi, _ := bits.Sub64(s.hi, o.hi, borrow)
	return sum{hi, lo}
}

// sumOf returns the hash of one member: of its kind, and of its JSON.
func sumOf(kind string, v any) sum {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("delta: %s has no JSON: %v", kind, err)) // plain structs always have
	}
	h := sha256.New()
	h.Write([]byte(kind))
	h.Write(b)
	var out [sha256.Size]byte
	h.Sum(out[:0])
	return sum{binary.BigEndian.Uint64(out[:8]), binary.BigEndian.Uint64(out[8:16])}
}

// MarshalText writes 32 hexadecimal digits.
func (s sum) MarshalText() ([]byte, error) {
	b := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, s.hi), s.lo)
	return []byte(hex.EncodeToString(b)), nil
}

// UnmarshalText reads 32 hexadecimal digits.
func (s *sum) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != 16 {
		return fmt.Errorf("%q is no checksum of 32 hexadecimal digits", text)
	}
	*s = sum{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
	return nil
}
