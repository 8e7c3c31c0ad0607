package reader_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

var quick = &store.SettleOptions{Backoff: time.Microsecond, MaxBackoff: time.Microsecond, Reads: 3}

// format is that of every test's log: made once, because the store is probed
// before.
var format = sync.OnceValue(func() manifest.Format {
	f, err := manifest.Init(context.Background(), memstore.New(nil), &manifest.InitOptions{Grace: -1})
	if err != nil {
		panic(err)
	}
	return f
})

// world is a log on a store whose every request a test can interfere with.
type world struct {
	testing.TB
	mem    *memstore.Store
	faulty *faultstore.Store
	format manifest.Format

	mu    sync.Mutex
	want  []string // the history
	epoch uint64   // the writers' last
	token uint64   // the compactors' last

	segments int64         // how large they grow; so small that those of these tests are merged
	patience time.Duration // of tail
	least    int           // the history is not complete with fewer records
}

func newWorld(t testing.TB, grace time.Duration) *world {
	t.Helper()
	f := format()
	f.Grace = manifest.Duration(grace)
	body, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TB: t, segments: 4096, patience: time.Hour, format: f, mem: memstore.New(&memstore.Options{Clock: clock.Go()})}
	w.faulty = faultstore.New(w.mem, &faultstore.Options{Clock: clock.Go()})
	w.put(layout.FormatKey, body)
	return w
}

// inBubble gives a log in virtual time.
func inBubble(t *testing.T, grace time.Duration, f func(t *testing.T, w *world)) {
	t.Helper()
	format() // outside: its probe is real
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, grace)) })
}

// sample is a log with four leaderships: two in segments, two not folded, and a
// hint of the tail.
func sample(t testing.TB) *world {
	t.Helper()
	w := newWorld(t, 0)
	for range 2 {
		w.lead(4)
		w.compact(8)
	}
	w.lead(4)
	w.lead(4)
	return w
}

func (w *world) fork(t testing.TB) *world {
	t.Helper()
	c := newWorld(t, 0)
	for _, key := range w.keys("") {
		c.put(key, w.body(key))
	}
	c.want, c.epoch, c.token = w.history(), w.epoch, w.token
	return c
}

func (w *world) keys(prefix string) []string {
	w.Helper()
	var all []string
	for info, err := range w.mem.List(context.Background(), prefix, nil) {
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, info.Key)
	}
	slices.Sort(all)
	return all
}

func (w *world) body(key string) []byte {
	w.Helper()
	body, _, err := store.ReadAll(context.Background(), w.mem, key, 1<<30, quick)
	if err != nil {
		w.Fatal(err)
	}
	return body
}

func (w *world) put(key string, body []byte) {
	w.Helper()
	if _, err := w.mem.Put(context.Background(), key, body, nil); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(keys ...string) {
	w.Helper()
	if err := w.mem.Delete(context.Background(), keys...); err != nil {
		w.Fatal(err)
	}
}

// lead is a leadership that appends n records, each in an object of its own.
func (w *world) lead(n int) {
	w.Helper()
	wr := w.open()
	for i := range n {
		w.append(wr, fmt.Sprintf("%d/%d", w.epoch, i))
	}
	w.close(wr)
}

func (w *world) open() *writer.Writer {
	w.Helper()
	w.epoch++
	wr, err := writer.Open(context.Background(), w.mem, fence.NewToken(w.epoch), &writer.Options{Settle: quick, NoCompress: true, Clock: clock.Go()})
	if err != nil {
		w.Fatal(err)
	}
	return wr
}

func (w *world) append(wr *writer.Writer, value string) {
	w.Helper()
	if _, err := wr.Append(context.Background(), [][]byte{[]byte(value)}); err != nil {
		w.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.want = append(w.want, value)
}

// history is what the log holds now. Others may be at work.
func (w *world) history() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.want)
}

func (w *world) close(wr *writer.Writer) {
	w.Helper()
	if err := wr.Close(context.Background()); err != nil {
		w.Fatal(err)
	}
}

// compact folds all, merges that many segments at a time, if there are, and prunes.
// With 8 or more nothing of these tests is merged.
func (w *world) compact(fanIn int) {
	w.Helper()
	o := &compactor.Options{FanIn: fanIn, Settle: quick, Clock: clock.Go()}
	if fanIn < 8 {
		o.SegmentBytes = w.segments
	}
	c, err := compactor.New(w.mem, o)
	if err != nil {
		w.Fatal(err)
	}
	w.token++
	if _, err := c.Once(context.Background(), fence.NewToken(w.token)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) newest() *state.Manifest {
	w.Helper()
	m, err := state.With(w.mem, w.format, nil).Newest(context.Background())
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// atMost returns a context that ends with so many more requests. A reader that asks
// for the same thing for ever does not let the bubble's time pass.
func (w *world) atMost(requests int) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	var last atomic.Int64 // requests are sent side by side
	w.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
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
		o.Settle = quick
	}
	o.Clock = clock.Go()
	r, err := reader.Open(context.Background(), w.faulty.Client("reader"), &o)
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
		want = w.history()
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
			want = w.history()
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

func at(epoch, seq uint64) fence.Position {
	return fence.Position{Epoch: fence.Epoch(epoch), Seq: seq}
}

// seal is an opener's seal, genuine or junk.
func (w *world) seal(p fence.Position, next uint64) []byte {
	h := frame.Header{Log: w.format.Log, Nonce: fence.ID(uuid.New()), Position: p, Time: time.Now()}
	return frame.EncodeSeal(&h, fence.Epoch(next))
}

// data is an object of the log, sound in itself.
func (w *world) data(p frame.Point, records ...string) []byte {
	var b frame.Builder
	for _, r := range records {
		b.Add([]byte(r))
	}
	h := frame.Header{Log: w.format.Log, Nonce: fence.ID(uuid.New()), Position: p.Position, Offset: p.Offset, Prev: p.Prev, Time: time.Now()}
	return slices.Clone(b.Finish(&h, frame.Plain))
}

// litter fills every hole that pruning has left, of what was there before, with
// junk of zombies.
func (w *world) litter(before []string) {
	w.Helper()
	now := w.keys("")
	for i, key := range before {
		if slices.Contains(now, key) {
			continue
		}
		if pos, ok := layout.ParseDataKey(key); ok {
			switch i % 3 {
			case 0:
				w.put(key, w.seal(pos, w.epoch+7))
			case 1:
				w.put(key, w.data(frame.Point{Position: pos}, "junk"))
			case 2:
				w.put(key, []byte("junk"))
			}
		}
		if v, ok := layout.ParseManifestKey(key); ok {
			m := *w.newest()
			m.Version, m.PruneMark, m.Dropped = v, 0, nil
			body, err := json.Marshal(m)
			if err != nil {
				w.Fatal(err)
			}
			w.put(key, body)
		}
	}
}
