package verify_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// meanwhile does something just before the first request for a key or prefix.
type meanwhile struct {
	store.Store
	key  string
	once sync.Once
	do   func()
}

// Expiries says that there are no lifecycle rules, as the store below does.
func (*meanwhile) Expiries(context.Context, string) ([]store.Expiry, error) { return nil, nil }

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

// TestMoved: what seems to be damage is checked by a manifest that is read after it.
func TestMoved(t *testing.T) {
	newer := func(l *logtest.Log) string { return layout.ManifestKey(l.Newest().PruneMark + 1) }
	next := func(*logtest.Log) string { return slot(3, 5) }
	var w *writer.Writer
	for name, c := range map[string]struct {
		before func(l *logtest.Log) (key string) // the first request for it
		do     func(l *logtest.Log)
		end    uint64
	}{
		"junk in a hole":      {next, func(l *logtest.Log) { compact(l); l.Put(slot(3, 5), []byte("a zombie's")) }, 15},
		"a junk seal in one":  {next, func(l *logtest.Log) { compact(l); l.Put(slot(3, 5), l.Seal(logtest.At(3, 5), 8)) }, 15},
		"pruned":              {next, compact, 15},
		"manifests, given up": {newer, compact, 15},
		// The walk has found 5/1 empty, and lists for a witness of the contrary.
		"the tail, written and pruned": {func(l *logtest.Log) string { w = l.Open(nil); return layout.DataPrefix }, func(l *logtest.Log) {
			l.Append(w, "x")
			l.Append(w, "y")
			l.Close(w)
			compact(l)
			l.Lead(1)
		}, 18},
		"a segment, merged": {func(l *logtest.Log) string { return l.Newest().Segments[0].Key }, func(l *logtest.Log) {
			old := l.Newest().Segments[0].Key
			c := compactorOf(l, compactor.Options{FanIn: 2, SegmentBytes: 4096})
			for range 4 {
				l.Lead(1)
				if _, err := c.Once(context.Background()); err != nil {
					l.Error(err)
				}
			}
			if l.Has(old) {
				l.Error("the segment has not been pruned")
			}
		}, 19},
	} {
		t.Run(name, func(t *testing.T) {
			l := sample(t)
			mark := l.Newest().PruneMark
			r := run(t, &meanwhile{Store: l.Mem, key: c.before(l), do: func() { c.do(l) }})
			if !r.OK() || r.End != c.end || l.Newest().PruneMark <= mark {
				t.Errorf("it ends at %d, and the prune mark went from %d to %d: %v", r.End, mark, l.Newest().PruneMark, r.Problems)
			}
		})
	}
}

// TestBesideWork verifies without pause, while leaders succeed each other and a compactor
// folds, merges and prunes without any grace.
func TestBesideWork(t *testing.T) {
	l := newLog(t)
	l.Lead(1)
	ctx, stop := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() {
		// Each writer is fenced by the next one, with requests in flight.
		for epoch := uint64(2); ctx.Err() == nil; epoch++ {
			w, err := writer.Open(ctx, l.Mem, fence.NewToken(fence.Epoch(epoch)), &writer.Options{Checkpoint: 5 * time.Millisecond})
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
		c, err := compactor.New(l.Mem, &compactor.Options{Token: fence.NewToken(1), FanIn: 2, SegmentBytes: 4 << 10})
		if err != nil {
			t.Error(err)
			return
		}
		for ctx.Err() == nil {
			if _, err := c.Once(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	var end uint64
	rounds := 0
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until) || rounds < 3; rounds++ {
		r := outlined(t, l.Mem)
		if r.OK() {
			r = run(t, l.Mem)
		}
		if !r.OK() {
			t.Fatalf("false alarm in round %d: %v", rounds, r.Problems)
		}
		if r.End < end {
			t.Fatalf("the log ended at %d, now at %d", end, r.End)
		}
		end = r.End
	}
	m := l.Newest()
	t.Logf("%d rounds, manifest %d, floor %v, %d seals, %d records", rounds, m.Version, m.Floor.Position, len(m.Seals), end)
	if m.Floor.Position.Epoch < 2 || m.PruneMark == 0 {
		t.Error("nothing was folded and pruned meanwhile")
	}
}
