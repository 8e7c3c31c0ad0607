package gcsstore

import (
	"cmp"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

// chunkUnit is the number of bytes of which the service wants a multiple in each chunk.
const chunkUnit = 256 << 10

// Options tune a [Store]. The zero value works.
type Options struct {
	// Endpoint is the service's scheme and host, such as http://127.0.0.1:4443. Default:
	// Google's own.
	Endpoint string
	// ChunkSize in bytes, a multiple of 256 KiB, default 8 MiB. A smaller Upload is one
	// request; a larger one is sent in chunks of this size, one of which is in memory.
	ChunkSize int64
}

// Validate returns what is wrong with the options: faults that are [store.ErrInvalid]. It
// does no I/O; nil is valid.
func (o *Options) Validate() error {
	v := o.withDefaults()
	var faults cloud.Faults
	if v.Endpoint != "" {
		err := checkEndpoint(v.Endpoint)
		faults.Need(err == nil, "Endpoint: %v", err)
	}
	faults.Need(v.ChunkSize > 0 && v.ChunkSize%chunkUnit == 0, "ChunkSize is %d bytes; it must be a multiple of %d", v.ChunkSize, chunkUnit)
	return faults.Err()
}

func (o *Options) withDefaults() Options {
	v := *cmp.Or(o, &Options{})
	v.ChunkSize = cmp.Or(v.ChunkSize, 8<<20)
	return v
}
