package sim

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
)

// tame makes all UUIDs rising numbers. So objects with random names sort by the order of
// their creation, in every run. Code that handles several of them takes them in that
// order.
var tame = sync.OnceFunc(func() { uuid.SetRand(&rising{}) })

type rising struct{ n atomic.Uint64 }

// Read implements [io.Reader].
func (r *rising) Read(p []byte) (int, error) {
	clear(p)
	binary.BigEndian.PutUint64(p, r.n.Add(1)<<16) // bytes 6 and 7 stay 0, because the UUID's version is written there
	return len(p), nil
}
