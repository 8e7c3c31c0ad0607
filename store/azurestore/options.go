package azurestore

import (
	"fmt"
	"time"
)

// Limits of block blobs.
const (
	maxBlocks    = 50_000
	maxBlockSize = 4000 << 20
)

// Options tune a [Store]. The zero value works.
type Options struct {
	// BlockSize of large uploads in bytes, default 8 MiB, up to 4000 MiB. Smaller
	// bodies are one request. A blob has at most 50,000 blocks; larger blocks are
	// used if UploadOptions.SizeHint asks for them.
	BlockSize int64
	// BlockConcurrency is how many blocks of one upload are in flight, default 4.
	// An upload holds BlockSize × (BlockConcurrency + 1) bytes.
	BlockConcurrency int
	// BlockAttempts is how often a block is sent at most, default 4.
	BlockAttempts int
	// Cleanup bounds looking at what became of a failed upload, also after its
	// context has ended. Default 10 s.
	Cleanup time.Duration
}

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.BlockSize == 0 {
		v.BlockSize = 8 << 20
	}
	if v.BlockConcurrency == 0 {
		v.BlockConcurrency = 4
	}
	if v.BlockAttempts == 0 {
		v.BlockAttempts = 4
	}
	if v.Cleanup == 0 {
		v.Cleanup = 10 * time.Second
	}
	switch {
	case v.BlockSize < 0 || v.BlockSize > maxBlockSize:
		return v, fmt.Errorf("a block has 1 to %d bytes, not %d", maxBlockSize, v.BlockSize)
	case v.BlockConcurrency < 0 || v.BlockAttempts < 0:
		return v, fmt.Errorf("blocks in flight and attempts at a block are at least 1, not %d and %d", v.BlockConcurrency, v.BlockAttempts)
	case v.Cleanup < 0:
		return v, fmt.Errorf("the time for looking after an upload must not be negative, it is %v", v.Cleanup)
	}
	return v, nil
}

// blocks chooses the size of blocks for an upload of about hint bytes, and how
// many are in flight.
func (o *Options) blocks(hint int64) (size int64, inFlight int, err error) {
	// Some room, since it is a hint: a quarter more.
	need := (hint + hint/4 + maxBlocks - 1) / maxBlocks
	switch {
	case hint < 0 || hint > maxBlocks*int64(maxBlockSize):
		return 0, 0, fmt.Errorf("a size hint is 0 to %d bytes, not %d", maxBlocks*int64(maxBlockSize), hint)
	case need <= o.BlockSize:
		return o.BlockSize, o.BlockConcurrency, nil
	}
	size = min((need+1<<20-1)>>20<<20, maxBlockSize)
	return size, max(1, int(o.BlockSize*int64(o.BlockConcurrency)/size)), nil
}
