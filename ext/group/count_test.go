package group_test

import (
	"context"
	"math/rand/v2"

	"github.com/fencepost/fencepost/store/faultstore"
)

// counting counts requests by client and kind.
func (w *world) counting(counts map[string]map[faultstore.Kind]int) func(context.Context, faultstore.Op) {
	return func(_ context.Context, op faultstore.Op) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if c := counts[op.Client]; c != nil {
			c[op.Kind]++
		}
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }
