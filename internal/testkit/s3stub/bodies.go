package s3stub

import (
	"sync"
	"sync/atomic"
)

// Forget makes the server receive and check the body of every PUT from now on, and not
// keep it: the object is there and is empty. The memory is used again, so that what is
// measured is not how the machine hands out gigabytes of it.
func (s *Server) Forget() { s.bodies.forget.Store(true) }

// bodies is the memory of what is received.
type bodies struct {
	forget atomic.Bool
	free   sync.Pool // of *[]byte
}

// forgets, once it is so, stays so: a body that was not to be forgotten when it had
// arrived is not used again, if it is kept or not.
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
