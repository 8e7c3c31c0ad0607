package sim

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// Random names and nonces are numbers that rise. So objects with random names have the same
// order in every run, the one in which they were named. Code that reads several objects
// reads them in that order.
var tame = sync.OnceFunc(func() { uuid.SetRand(&rising{}) })

type rising struct{ n atomic.Uint64 }

// Read implements [io.Reader].
func (r *rising) Read(p []byte) (int, error) {
	clear(p)
	binary.BigEndian.PutUint64(p, r.n.Add(1)<<16) // the bits of a UUID that tell its version come after it
	return len(p), nil
}
