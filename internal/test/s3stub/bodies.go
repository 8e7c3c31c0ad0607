package s3stub

import (
	"sync"
	"sync/atomic"
)

// Forget makes the server drop the body of every later PUT after it has received and checked
// it: the objects are empty. It reuses the memory, so that a benchmark does not measure how
// the machine allocates gigabytes.
func (s *Server) Forget() { s.bodies.forget.Store(true) }

// bodies is the memory for received bodies.
type bodies struct {
	forget atomic.Bool
	free   sync.Pool // of *[]byte
}

// forgets never goes back to false. A body that arrived before is not reused.
func (b *bodies) forgets(op Op) bool { return op == PutObject && b.forget.Load() }

func (b *bodies) take(op Op, n int) []byte {
	if n > 0 && b.forgets(op) {
		if free, ok := b.free.Get().(*[]byte); ok && cap(*free) >= n {
			return (*free)[:n]
		}
	}
	return make([]byte, n)
}

func (b *bodies) give(body []byte) { b.free.Put(&body) }
