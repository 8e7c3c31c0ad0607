package reader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
)

// world is a log, and how these tests read it.
type world struct {
	*logtest.Log
	segments int64         // how large they grow; so small that those of these tests are merged
	patience time.Duration // of tail
	least    int           // the history is not complete with fewer records
}

func worldOf(l *logtest.Log) *world { return &world{Log: l, segments: 4096, patience: time.Hour} }

func newWorld(t testing.TB, grace time.Duration) *world {
	t.Helper()
	return worldOf(logtest.New(t, logtest.WithGrace(grace), nil))
}

// inBubble gives a log in virtual time.
func inBubble(t *testing.T, grace time.Duration, f func(t *testing.T, w *world)) {
	t.Helper()
	logtest.Bubble(t, logtest.WithGrace(grace), func(t *testing.T, l *logtest.Log) { f(t, worldOf(l)) })
}

// sample is a log with four leaderships: two in segments, two not folded, and a
// hint of the tail.
func sample(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, 0)
	for range 2 {
		w.Lead(4)
		w.compact(8)
	}
	w.Lead(4)
	w.Lead(4)
	return w
}

// compact folds all, merges that many segments at a time, if there are, and prunes.
// With 8 or more nothing of these tests is merged.
func (w *world) compact(fanIn int) {
	w.Helper()
	w.Token++
	o := &compactor.Options{Token: fence.NewToken(w.Token), FanIn: fanIn, Settle: logtest.Quick, Clock: clock.Go()}
	if fanIn < 8 {
		o.SegmentBytes = w.segments
	}
	c, err := compactor.New(w.Mem, o)
	if err != nil {
		w.Fatal(err)
	}
	if _, err := c.Once(context.Background()); err != nil {
		w.Fatal(err)
	}
}

// atMost returns a context that ends with so many more requests. A reader that asks
// for the same thing for ever does not let the bubble's time pass.
func (w *world) atMost(requests int) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	var last atomic.Int64 // requests are sent side by side
	w.Faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
		last.CompareAndSwap(0, int64(op.N+requests))
		if int64(op.N) == last.Load() {
			cancel(fmt.Errorf("%d requests, and no end", requests))
		}
	})
	return ctx
}

func (w *world) reader(opts *reader.Options) *reader.Reader {
	w.Helper()
	var o reader.Options
	if opts != nil {
		o = *opts
	}
	if o.Settle == nil {
		o.Settle = logtest.Quick
	}
	o.Clock = clock.Go()
	r, err := reader.Open(context.Background(), w.Faulty.Client("reader"), &o)
	if err != nil {
		w.Fatal(err)
	}
	return r
}

// got collects records and checks their offsets.
type got struct {
	from   uint64
	values []string
}

func (g *got) add(rec reader.Record) error {
	if want := g.from + uint64(len(g.values)); rec.Offset != want {
		return fmt.Errorf("record %d comes after %d", rec.Offset, want-1)
	}
	g.values = append(g.values, string(rec.Value))
	return nil
}

// read reads to the end.
func (w *world) read(r *reader.Reader, from uint64) ([]string, error) {
	g := got{from: from}
	for rec, err := range r.Read(context.Background(), from) {
		if err == nil {
			err = g.add(rec)
		}
		if err != nil {
			return g.values, err
		}
	}
	return g.values, nil
}

// tail follows until the history is complete, at most for the world's patience. When is called
// with each record.
func (w *world) tail(r *reader.Reader, from uint64, when func(reader.Record)) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer time.AfterFunc(w.patience, func() { cancel(errPatience) }).Stop()
	g := got{from: from}
	var want []string
	for rec, err := range r.Tail(ctx, from) {
		want = w.History()
		if errors.Is(err, errPatience) && int(from)+len(g.values) == len(want) {
			break // there was nothing to come
		}
		if err == nil {
			err = g.add(rec)
		}
		if err != nil {
			return fmt.Errorf("after %d of %d records: %w", len(g.values), len(want), err)
		}
		if when != nil {
			when(rec)
			want = w.History()
		}
		if n := int(from) + len(g.values); n == len(want) && n >= w.least {
			break
		}
	}
	if !slices.Equal(g.values, want[from:]) {
		return fmt.Errorf("it read %q, want %q", g.values, want[from:])
	}
	return nil
}

var errPatience = errors.New("nothing comes any more")

// litter fills every hole that pruning has left, of what was there before, with
// junk of zombies.
func (w *world) litter(before []string) {
	w.Helper()
	now := w.Keys("")
	for i, key := range before {
		if slices.Contains(now, key) {
			continue
		}
		if pos, ok := layout.ParseDataKey(key); ok {
			switch i % 3 {
			case 0:
				w.Put(key, w.Seal(pos, w.Epoch+7))
			case 1:
				w.Put(key, w.Data(frame.Point{Position: pos}, "junk"))
			case 2:
				w.Put(key, []byte("junk"))
			}
		}
		if v, ok := layout.ParseManifestKey(key); ok {
			m := *w.Newest()
			m.Version, m.PruneMark, m.Dropped = v, 0, nil
			body, err := document.Encode(layout.ManifestKey(m.Version), m)
			if err != nil {
				w.Fatal(err)
			}
			w.Put(key, body)
		}
	}
}

// truncate deletes history, as retention does.
func (w *world) truncate(before uint64) {
	w.Helper()
	w.Publish(func(m *state.Change) error { return m.Truncate(before) })
}
