package frame

import (
	"encoding/binary"
	"hash/crc32"
)

// Sum returns the CRC-32C of a whole frame, as [Builder.Stamp] or [EncodeSeal] returned
// it. It believes the checksum of the body that stands in the header and reads only that:
// what wants a checksum of what is sent need not read the body a second time.
func Sum(frame []byte) uint32 {
	head := frame[:HeaderSize]
	return behind(crc32.Checksum(head, castagnoli), len(frame)-HeaderSize) ^ binary.LittleEndian.Uint32(head[92:])
}

// behind returns what the CRC of some bytes adds to that of n more behind them: the CRC
// of both is this, exclusive-or the CRC of the n alone. CRCs are remainders of
// polynomials over GF(2), and n bytes more are a factor of x^8n. As crc32_combine of
// zlib has it.
func behind(crc uint32, n int) uint32 {
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
