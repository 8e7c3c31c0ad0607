package frame

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
)

// TestSum is the CRC-32C of the whole, whatever its length.
func TestSum(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(frame []byte) {
		t.Helper()
		if got, want := Sum(frame), crc32.Checksum(frame, castagnoli); got != want {
			t.Errorf("a frame of %d bytes: %08x, want %08x", len(frame), got, want)
		}
	}
	for n := range 300 {
		for _, codec := range []Codec{Plain, Zstd} {
			var b Builder
			for range n % 5 {
				b.Add(bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(1<<(n%17)+1)))
			}
			if n%3 == 0 {
				b.SetCursor([]byte("cursor")[:n%7])
			}
			h := testHeader()
			check(b.Finish(&h, codec))
		}
	}
	h := Header{Position: fence.Position{Epoch: 1, Seq: 2}, Time: time.Unix(1, 0)}
	check(EncodeSeal(&h, 2))
}
