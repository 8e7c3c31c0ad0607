package verify_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// meanwhile does something just before the first request for a key or prefix.
type meanwhile struct {
	store.Store
	key  string
	once sync.Once
	do   func()
}

func (m *meanwhile) Get(ctx context.Context, key string, opts *store.GetOptions) (*store.Object, error) {
	if key == m.key {
		m.once.Do(m.do)
	}
	return m.Store.Get(ctx, key, opts)
}

func (m *meanwhile) List(ctx context.Context, prefix string, opts *store.ListOptions) iter.Seq2[store.Info, error] {
	if prefix == m.key {
		m.once.Do(m.do)
	}
	return m.Store.List(ctx, prefix, opts)
}

// TestOvertaken: what looks like damage is judged by a manifest that is read
// after it.
func TestOvertaken(t *testing.T) {
	t.Run("junk in a hole", func(t *testing.T) {
		st := sample(t)
		r := run(t, &meanwhile{Store: st, key: slot(3, 5), do: func() {
			compact(t, st, 2)
			put(t, st, slot(3, 5), []byte("a zombie's"))
		}})
		if !r.OK() || r.End != 15 {
			t.Error(r.End, r.Problems)
		}
	})
	t.Run("a junk seal in a hole", func(t *testing.T) {
		st := sample(t)
		r := run(t, &meanwhile{Store: st, key: slot(3, 5), do: func() {
			compact(t, st, 2)
			h := frame.Header{Log: newest(t, st).Log, Nonce: fence.ID{1}, Position: fence.Position{Epoch: 3, Seq: 5}}
			put(t, st, slot(3, 5), frame.EncodeSeal(&h, 8))
		}})
		if !r.OK() || r.End != 15 {
			t.Error(r.End, r.Problems)
		}
	})
	t.Run("pruned", func(t *testing.T) {
		st := sample(t)
		r := run(t, &meanwhile{Store: st, key: slot(3, 5), do: func() { compact(t, st, 2) }})
		if !r.OK() || r.End != 15 {
			t.Error(r.End, r.Problems)
		}
	})
	t.Run("the tail, written and pruned", func(t *testing.T) {
		st := sample(t)
		w, err := writer.Open(t.Context(), st, fence.NewToken(5), nil)
		if err != nil {
			t.Fatal(err)
		}
		// The walk has found 5/1 empty, and lists for a witness of the contrary.
		r := run(t, &meanwhile{Store: st, key: layout.DataPrefix, do: func() {
			for range 2 {
				if _, err := w.Append(t.Context(), [][]byte{[]byte("x")}); err != nil {
					t.Error(err)
				}
			}
			if err := w.Close(t.Context()); err != nil {
				t.Error(err)
			}
			compact(t, st, 2)
			lead(t, st, 6, 1)
		}})
		if !r.OK() || r.End != 18 {
			t.Error(r.End, r.Problems)
		}
	})
	t.Run("a segment, merged", func(t *testing.T) {
		st := sample(t)
		old := newest(t, st).Segments[0].Key
		r := run(t, &meanwhile{Store: st, key: old, do: func() {
			c, err := compactor.New(st, &compactor.Options{FanIn: 2, SegmentBytes: 4096})
			if err != nil {
				t.Error(err)
				return
			}
			for range 4 {
				if _, err := c.Once(t.Context(), fence.NewToken(2)); err != nil {
					t.Error(err)
				}
			}
			if _, err := st.Get(t.Context(), old, nil); !errors.Is(err, store.ErrNotFound) {
				t.Errorf("the segment has not been pruned: %v", err)
			}
		}})
		if !r.OK() || r.End != 15 {
			t.Error(r.End, r.Problems)
		}
	})
	t.Run("manifests, given up", func(t *testing.T) {
		st := sample(t)
		m := newest(t, st)
		r := run(t, &meanwhile{Store: st, key: layout.ManifestKey(m.PruneMark + 1), do: func() { compact(t, st, 2) }})
		if !r.OK() || newest(t, st).PruneMark <= m.PruneMark+1 {
			t.Error(r.Problems)
		}
	})
}

// TestBesideWork verifies without pause while leaders take over from each other
// and a compactor folds, merges and prunes without any grace.
func TestBesideWork(t *testing.T) {
	st := memstore.New(nil)
	lead(t, st, 1, 1)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		// Each writer is left behind as it is, with requests under way, and fenced
		// by the next.
		for epoch := uint64(2); ctx.Err() == nil; epoch++ {
			w, err := writer.Open(ctx, st, fence.NewToken(epoch), &writer.Options{Checkpoint: 5 * time.Millisecond})
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			for i := range 100 {
				if _, err := w.AppendAsync(ctx, [][]byte{fmt.Appendf(nil, "%d/%d", epoch, i)}); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
			work.Go(func() {
				gone, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				_ = w.Close(gone)
			})
		}
	})
	work.Go(func() {
		c, err := compactor.New(st, &compactor.Options{FanIn: 2, SegmentBytes: 4 << 10})
		if err != nil {
			t.Error(err)
			return
		}
		for ctx.Err() == nil {
			if _, err := c.Once(ctx, fence.NewToken(1)); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	var end uint64
	rounds := 0
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until) || rounds < 3; rounds++ {
		r := run(t, st)
		if !r.OK() {
			t.Fatalf("false alarm in round %d: %v", rounds, r.Problems)
		}
		if r.End < end {
			t.Fatalf("the log ended at %d, now at %d", end, r.End)
		}
		end = r.End
	}
	m := newest(t, st)
	t.Logf("%d rounds, manifest %d, floor %v, %d seals, %d records", rounds, m.Version, m.Floor.Position, len(m.Seals), end)
	if m.Floor.Position.Epoch < 2 || m.PruneMark == 0 {
		t.Error("nothing was folded and pruned meanwhile")
	}
}
