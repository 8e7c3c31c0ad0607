package state

import (
	"context"
	"iter"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// meter counts requests, and the bytes of their bodies.
type meter struct {
	store.Store
	requests, bytes atomic.Int64
}

func (s *meter) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	s.requests.Add(1)
	s.bytes.Add(int64(len(body)))
	return s.Store.Put(ctx, key, body, opts)
}

func (s *meter) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	o, err := s.Store.Get(ctx, key, opts)
	s.requests.Add(1)
	if err == nil {
		s.bytes.Add(o.Size)
	}
	return o, err
}

func (s *meter) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	s.requests.Add(1)
	return s.Store.List(ctx, prefix, opts)
}

const (
	updates = 200 // of a table whose cost is measured
	changes = 50  // how many files each of them adds, and how many it removes, anywhere
)

// cost returns what an update costs on a table of so many files, in the mean over
// many, each of which adds some and removes any others.
func cost(t testing.TB, files int) (bytes, requests float64) {
	t.Helper()
	st := &meter{Store: memstore.New(nil)}
	w := newTableModel(t, st, testFormat())
	e := &manifest.Edit{}
	for range files {
		e.Add = append(e.Add, w.file(false))
	}
	w.commit(e)
	live := w.keys()
	st.requests.Store(0)
	st.bytes.Store(0)
	for range updates {
		e := &manifest.Edit{}
		w.rng.Shuffle(len(live), func(i, j int) { live[i], live[j] = live[j], live[i] })
		e.Remove, live = slices.Clone(live[:changes]), live[changes:]
		for range changes {
			f := w.file(false)
			e.Add, live = append(e.Add, f), append(live, f.Key)
		}
		w.commit(e)
		if w.m.Version%20 == 0 { // as a compactor does
			w.update(func(m *Change) error {
				m.PruneMark = m.Version
				m.Forget(m.Version)
				return nil
			})
		}
	}
	return float64(st.bytes.Load()) / updates, float64(st.requests.Load()) / updates
}

// TestCostOfLargeTables: an update of a table of 10,000 or 100,000 files costs as much as one
// of 1,000, also if the files that go are anywhere. It goes on for long enough that
// pages of files are written anew.
func TestCostOfLargeTables(t *testing.T) {
	large := test.Of(10_000, 100_000)
	smallBytes, smallRequests := cost(t, 1000)
	bytes, requests := cost(t, large)
	t.Logf("1,000 files: %.0f bytes, %.2f requests; %d files: %.0f bytes, %.2f requests", smallBytes, smallRequests, large, bytes, requests)
	if bytes > 1.5*smallBytes || requests > 1.5*smallRequests {
		t.Errorf("%.2f times the bytes, %.2f times the requests", bytes/smallBytes, requests/smallRequests)
	}
}
