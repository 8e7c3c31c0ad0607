package iceberg_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// remembering is a store that keeps copies, and knows which of the bodies written are still in memory.
type remembering struct {
	store.Store
	mu     sync.Mutex
	bodies []weak.Pointer[byte]
}

func (r *remembering) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	r.mu.Lock()
	r.bodies = append(r.bodies, weak.Make(&body[0]))
	r.mu.Unlock()
	return r.Store.Put(ctx, key, bytes.Clone(body), opts)
}

// TestForgets: a publisher that follows a table does not keep what it has written for earlier versions.
func TestForgets(t *testing.T) {
	root := &remembering{Store: memstore.New(nil)}
	b := open(t, root)
	b.create(t)
	for i := range 50 {
		if ok, err := b.Create(t.Context(), b.s, b.add(1, fmt.Sprintf("%d.parquet", i))); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	runtime.GC()
	kept := 0
	for _, w := range root.bodies {
		if w.Value() != nil {
			kept++
		}
	}
	if kept > 10 {
		t.Errorf("of %d bodies written, %d are in memory", len(root.bodies), kept)
	}
	runtime.KeepAlive(b)
}
