package gcsstore

import (
	"fmt"
	"time"
)

// chunkUnit is what the service wants chunks to be a multiple of.
const chunkUnit = 256 << 10

// Options tune a [Store]. The zero value works.
type Options struct {
	// Endpoint is where the service is, default Google's own: scheme and host, as
	// in http://127.0.0.1:4443.
	Endpoint string
	// UserProject is the project that pays for requests to a bucket whose owner
	// does not.
	UserProject string
	// ChunkSize in bytes: an Upload of less is one request, of more it is sent in
	// such chunks. An Upload holds one. Default 8 MiB, a multiple of 256 KiB.
	ChunkSize int
	// Cleanup bounds looking at what became of a failed upload, also after its
	// context has ended. Default 10 s.
	Cleanup time.Duration
}

func (o *Options) withDefaults() (Options, error) {
	var v Options
	if o != nil {
		v = *o
	}
	if v.ChunkSize == 0 {
		v.ChunkSize = 8 << 20
	}
	if v.Cleanup == 0 {
		v.Cleanup = 10 * time.Second
	}
	if v.Endpoint != "" {
		if err := checkEndpoint(v.Endpoint); err != nil {
			return v, err
		}
	}
	switch {
	case v.ChunkSize < 0 || v.ChunkSize%chunkUnit != 0:
		return v, fmt.Errorf("a chunk has a multiple of %d bytes, not %d", chunkUnit, v.ChunkSize)
	case v.Cleanup < 0:
		return v, fmt.Errorf("the time for looking after an upload must not be negative, it is %v", v.Cleanup)
	}
	return v, nil
}
