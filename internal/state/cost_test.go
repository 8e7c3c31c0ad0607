package state

import (
	"context"
	"flag"
	"iter"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

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

// churn is how files come and go: it takes n of the live files out, which are in
// the order in which they came.
var churn = map[string]func(rng *rand.Rand, live []string, n int) (gone, left []string){
	// Retention: the oldest go.
	"oldest": func(_ *rand.Rand, live []string, n int) (gone, left []string) { return live[:n], live[n:] },
	// The newest are merged soon.
	"newest": func(_ *rand.Rand, live []string, n int) (gone, left []string) {
		at := len(live) - n
		return slices.Clone(live[at:]), live[:at]
	},
	// Some that were written one after the other are merged.
	"runs": func(rng *rand.Rand, live []string, n int) (gone, left []string) {
		at := rng.IntN(len(live) - n + 1)
		return slices.Clone(live[at : at+n]), slices.Delete(live, at, at+n)
	},
	// Any; the order is lost.
	"random": func(rng *rand.Rand, live []string, n int) (gone, left []string) {
		for i := range n {
			last := len(live) - 1 - i
			at := rng.IntN(last + 1)
			live[at], live[last] = live[last], live[at]
		}
		at := len(live) - n
		return slices.Clone(live[at:]), live[:at]
	},
}

// cost returns what an update costs on a table of so many files, in the mean over
// many, each of which adds and removes some.
func cost(t testing.TB, files int, pick func(rng *rand.Rand, live []string, n int) (gone, left []string)) (bytes, requests float64) {
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
	for range *updates {
		e := &manifest.Edit{}
		e.Remove, live = pick(w.rng, live, *changes)
		for range *changes {
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
	return float64(st.bytes.Load()) / float64(*updates), float64(st.requests.Load()) / float64(*updates)
}

var (
	pattern = flag.String("churn", "random", "how files come and go in the measurement of a table's cost; all of oldest, newest, runs, random with \"\"")
	updates = flag.Int("updates", 200, "with how many updates it is measured")
	changes = flag.Int("changes", 50, "how many files each of them adds, and how many it removes")
)

// TestCostOfLargeTables: an update of a table of 100,000 files costs as much as one
// of 1,000, also if the files that go are anywhere. It goes on for long enough that
// pages of files are written anew.
func TestCostOfLargeTables(t *testing.T) {
	large := 100_000
	if testing.Short() {
		large = 20_000
	}
	for name, pick := range churn {
		if *pattern != "" && *pattern != name {
			continue
		}
		smallBytes, smallRequests := cost(t, 1000, pick)
		bytes, requests := cost(t, large, pick)
		t.Logf("%s: 1,000 files: %.0f bytes, %.2f requests; %d files: %.0f bytes, %.2f requests", name, smallBytes, smallRequests, large, bytes, requests)
		if bytes > 1.5*smallBytes || requests > 1.5*smallRequests {
			t.Errorf("%s: %.2f times the bytes, %.2f times the requests", name, bytes/smallBytes, requests/smallRequests)
		}
	}
}
