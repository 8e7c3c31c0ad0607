package frame

import (
	"encoding/binary"
	"hash/crc32"
)

// Sum returns the CRC-32C of a whole frame that [Builder.Stamp] or [EncodeSeal] has made.
// It reads only the header, and relies on the body's checksum in it. So a checksum of the
// whole request costs no second reading of the body.
func Sum(frame []byte) uint32 {
	head := frame[:HeaderSize]
	return shift(crc32.Checksum(head, castagnoli), len(frame)-HeaderSize) ^ binary.LittleEndian.Uint32(head[92:])
}

// shift returns what the CRC of some bytes contributes when n more bytes follow them: the
// CRC of all is shift(crc, n), exclusive-or the CRC of the n bytes alone. CRCs are
// remainders of polynomials over GF(2), and n more bytes are a factor of x^8n. zlib's
// crc32_combine does the same.
func shift(crc uint32, n int) uint32 {
	power := uint32(1 << 23) // x^8; the coefficient of x^0 is the top bit
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			crc = times(crc, power)
		}
		power = times(power, power)
	}
	return crc
}

// times multiplies two polynomials modulo that of CRC-32C.
func times(a, b uint32) (p uint32) {
	for ; a != 0; a <<= 1 {
		p ^= b & -(a >> 31)
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}
