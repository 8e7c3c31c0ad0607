package writer_test

import (
	"context"
	"hash/crc32"
	"strings"
	"sync"
	"testing"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// told compares what a driver is told of the bodies of log objects with what they are.
type told struct {
	store.Store
	mu          sync.Mutex
	right, seen int
}

func (s *told) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	if p, ok := layout.ParseDataKey(key); ok && p.Epoch > 0 {
		s.mu.Lock()
		s.seen++
		if opts.CRC32C != nil && *opts.CRC32C == crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)) {
			s.right++
		}
		s.mu.Unlock()
	}
	return s.Store.Put(ctx, key, body, opts)
}

// A driver is told the checksum of each log object that is sent, whether it is compressed
// and whether it has a cursor, and need not read the body to know it.
func TestDriverIsToldTheChecksum(t *testing.T) {
	st := &told{Store: memstore.New(nil)}
	w, err := writer.Open(t.Context(), st, fence.NewToken(1), &writer.Options{Init: quickly})
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range []string{"", "record", strings.Repeat("record", 10_000)} {
		for _, opts := range [][]writer.AppendOption{nil, {writer.Cursor([]byte("cursor"))}} {
			if _, err := w.Append(t.Context(), [][]byte{[]byte(rec)}, opts...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st.seen != 6 || st.right != st.seen {
		t.Errorf("of %d objects %d had their checksums told", st.seen, st.right)
	}
}
