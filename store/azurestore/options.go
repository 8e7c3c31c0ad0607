package azurestore

import (
	"cmp"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Limits of block blobs.
const (
	maxBlocks    = 50_000
	maxBlockSize = 4000 << 20
)

// Options tune a [Store]. The zero value works.
type Options struct {
	// BlockSize of large uploads in bytes, default 8 MiB, at most 4000 MiB. Smaller bodies
	// are one request. A blob has at most 50,000 blocks; if UploadOptions.SizeHint asks for
	// more, blocks are larger.
	BlockSize int64
	// BlockConcurrency is how many blocks of one upload are in flight, default 4.
	// An upload holds BlockSize × (BlockConcurrency + 1) bytes.
	BlockConcurrency int
}

// Validate returns what is wrong with the options: faults that are [store.ErrInvalid]. It
// does no I/O; nil is valid.
func (o *Options) Validate() error {
	v := o.withDefaults()
	var faults cloud.Faults
	faults.Need(v.BlockSize > 0 && v.BlockSize <= maxBlockSize, "BlockSize is %d bytes; it must be 1 to %d", v.BlockSize, maxBlockSize)
	faults.Need(v.BlockConcurrency > 0, "BlockConcurrency is %d; it must be at least 1", v.BlockConcurrency)
	return faults.Err()
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.BlockSize = cmp.Or(v.BlockSize, 8<<20)
	v.BlockConcurrency = cmp.Or(v.BlockConcurrency, 4)
	return v
}
