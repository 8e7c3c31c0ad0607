package sim

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// What is random in names and nonces is a number that rises, so that the order of
// objects with random names is that in which they were named, in every run: who looks
// at several looks at them in that order.
var tame = sync.OnceFunc(func() { uuid.SetRand(&rising{}) })

type rising struct{ n atomic.Uint64 }

// Read implements [io.Reader].
func (r *rising) Read(p []byte) (int, error) {
	clear(p)
	binary.BigEndian.PutUint64(p, r.n.Add(1)<<16) // what a UUID says of its version is behind it
	return len(p), nil
}
