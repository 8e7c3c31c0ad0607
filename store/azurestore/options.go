package azurestore

import (
	"cmp"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// Limits of block blobs.
const (
	maxBlocks    = 50_000
	maxBlockSize = 4000 << 20
	// blocksInFlight is how many blocks of one upload are sent at once, at most.
	blocksInFlight = 4
)

// Options tune a [Store]. The zero value works.
type Options struct {
	// BlockSize of large uploads in bytes, default 8 MiB, at most 4000 MiB. Smaller bodies
	// are one request. Up to four blocks of an upload are in flight, so it holds five times as
	// much in memory. A blob has at most 50,000 blocks; if UploadOptions.SizeHint asks for
	// more, blocks are larger.
	BlockSize int64
}

// Validate returns what is wrong with the options: faults that are [store.ErrInvalid]. It
// does no I/O; nil is valid.
func (o *Options) Validate() error {
	v := o.withDefaults()
	var faults cloud.Faults
	faults.Need(v.BlockSize > 0 && v.BlockSize <= maxBlockSize, "BlockSize is %d bytes; it must be 1 to %d", v.BlockSize, maxBlockSize)
	return faults.Err()
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.BlockSize = cmp.Or(v.BlockSize, 8<<20)
	return v
}
