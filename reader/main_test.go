package reader_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/fencepost/fencepost/fence"
)

// TestMain makes package zstd's encoder and decoder, which all frames share,
// outside of every bubble: their channels would belong to the first.
func TestMain(m *testing.M) {
	var b fence.Builder
	b.Add(bytes.Repeat([]byte("a"), 1000))
	h := fence.Header{Position: fence.Position{Epoch: 1, Seq: 1}}
	if _, err := fence.Decode(b.Finish(&h, fence.Zstd), fence.DefaultLimits); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
