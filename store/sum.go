package store

import "context"

type sumKey struct{}

type sum struct {
	crc  uint32
	size int
}

// WithCRC32C returns a context that tells a driver the CRC-32C (Castagnoli) of the one
// body of size bytes that is put under it, by [Create] as often as it takes. A driver that
// sends this checksum then need not read the body once more, and the checksum also covers
// the way to the driver. A wrong one makes the store refuse the request, or is ignored.
func WithCRC32C(ctx context.Context, crc uint32, size int) context.Context {
	return context.WithValue(ctx, sumKey{}, sum{crc, size})
}

// CRC32C is for drivers: the checksum that the caller of Put knows of a body of size
// bytes, if it does.
func CRC32C(ctx context.Context, size int) (crc uint32, known bool) {
	s, known := ctx.Value(sumKey{}).(sum)
	return s.crc, known && s.size == size
}
