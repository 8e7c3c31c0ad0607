package faultstore

import (
	"context"
	"sync"
)

// BeforeFirst replaces Options.Before, for all clients: do runs once, before the first
// request that fits, in that request's goroutine. done reports whether do has returned;
// then the caller also sees what fits and do have written.
//
// Requests may come at the same time. fits is called for one of them at a time, so it may
// count, and no more after it has returned true. It must not make requests, nor wait. While
// do runs no other request waits for it, so do may make requests that fit, or wait for such.
func (sh *shared) BeforeFirst(fits func(Op) bool, do func(context.Context)) (done func() bool) {
	var mu sync.Mutex // also keeps the calls of fits in order
	found, over := false, false
	first := func(op Op) bool {
		mu.Lock()
		defer mu.Unlock()
		if found {
			return false
		}
		found = fits(op)
		return found
	}
	sh.SetBefore(func(ctx context.Context, op Op) {
		if !first(op) {
			return
		}
		do(ctx)
		mu.Lock()
		defer mu.Unlock()
		over = true
	})
	return func() bool {
		mu.Lock()
		defer mu.Unlock()
		return over
	}
}
