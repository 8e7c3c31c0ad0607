package reader_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test/logtest"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// Every offset is a place to begin, and so is one after the end.
func TestFromEveryOffset(t *testing.T) {
	w := sample(t)
	r := w.reader(nil)
	for from := range uint64(len(w.History())) + 2 {
		values, err := w.read(r, from)
		if want := w.History()[min(int(from), len(w.History())):]; err != nil || !slices.Equal(values, want) {
			t.Errorf("from %d: %q, %v; want %q", from, values, err, want)
		}
	}
	// A tailing reader waits for one that has not come yet.
	inBubbleFork(t, w, func(w *world) {
		time.AfterFunc(time.Hour/2, func() { w.Lead(4) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		for rec, err := range w.reader(nil).Tail(ctx, 18) {
			if err != nil || rec.Offset != 18 || string(rec.Value) != "5/2" {
				t.Errorf("from 18: %+v, %v", rec, err)
			}
			break
		}
	})
}

// An empty log, and one with leaders that never wrote, have no records and are no
// error.
func TestNothingThere(t *testing.T) {
	w := newWorld(t, 0)
	for i := range 4 {
		if values, err := w.read(w.reader(nil), 0); err != nil || len(values) > 0 {
			t.Errorf("%d leaders: %q, %v", i, values, err)
		}
		w.Lead(0)
	}
	w.compact(2)
	if values, err := w.read(w.reader(nil), 5); err != nil || len(values) > 0 {
		t.Errorf("compacted: %q, %v", values, err)
	}
}

// A reader that follows begins at the leader's hint if all before it is known.
func TestBeginsAtTheHint(t *testing.T) {
	w := newWorld(t, 0)
	w.Lead(50)
	for from, cost := range map[uint64]int{50: 1, 60: 1} {
		r := w.reader(nil)
		w.Faulty.ResetCounts()
		if values, err := w.read(r, from); err != nil || len(values) > 0 {
			t.Errorf("from %d: %q, %v", from, values, err)
		}
		if n := w.Faulty.Counts().Of(faultstore.Get, layout.DataPrefix); n > cost {
			t.Errorf("from %d it takes %d GETs of the log", from, n)
		}
	}
	// A hint is of no use if a record before it is wanted.
	if values, err := w.read(w.reader(nil), 49); err != nil || len(values) != 1 {
		t.Errorf("from 49: %q, %v", values, err)
	}
}

// Records before the first that is kept are gone, and the error says where the log
// begins.
func TestGone(t *testing.T) {
	w := sample(t)
	w.Publish(func(m *state.Change) error {
		m.Segments = m.Segments[1:]
		return m.Truncate(m.Segments[0].First)
	})
	r := w.reader(nil)
	for _, from := range []uint64{0, 3} {
		values, err := w.read(r, from)
		if !errors.Is(err, reader.ErrGone) || len(values) > 0 || !strings.Contains(err.Error(), "begins at 4") {
			t.Errorf("from %d: %q, %v", from, values, err)
		}
	}
	if values, err := w.read(r, 4); err != nil || !slices.Equal(values, w.History()[4:]) {
		t.Errorf("from 4: %q, %v", values, err)
	}
}

// Damage is reported with the key, after all the records before it.
func TestDamage(t *testing.T) {
	base := sample(t)
	segs := base.Newest().Segments
	for name, c := range map[string]struct {
		key  string
		harm func(w *world, key string)
		want int // records before
	}{
		"object of the log": {layout.DataKey(logtest.At(3, 3)), func(w *world, key string) { b := w.Body(key); w.Put(key, b[:len(b)-1]) }, 10},
		"empty object":      {layout.DataKey(logtest.At(3, 1)), func(w *world, key string) { w.Put(key, nil) }, 8},
		"a seal":            {layout.DataKey(logtest.At(3, 5)), func(w *world, key string) { w.Put(key, []byte("junk")) }, 12},
		"segment missing":   {segs[1].Key, func(w *world, key string) { w.Remove(key) }, 4},
		"segment cut":       {segs[1].Key, func(w *world, key string) { w.Put(key, w.Body(key)[:100]) }, 4},
		"segment empty":     {segs[0].Key, func(w *world, key string) { w.Put(key, nil) }, 0},
		"segment flipped":   {segs[0].Key, func(w *world, key string) { b := slices.Clone(w.Body(key)); b[140] ^= 1; w.Put(key, b) }, 0},
		"of another log": {layout.DataKey(logtest.At(3, 1)), func(w *world, key string) {
			w.Format.Log[0] ^= 1
			w.Put(key, w.Data(frame.Point{Position: logtest.At(3, 1), Offset: 8}, "x"))
		}, 8},
		"out of line": {layout.DataKey(logtest.At(3, 1)), func(w *world, key string) {
			w.Put(key, w.Data(frame.Point{Position: logtest.At(3, 1), Offset: 8}, "x"))
		}, 8},
		"for the wrong slot": {layout.DataKey(logtest.At(3, 2)), func(w *world, key string) { w.Put(key, w.Body(layout.DataKey(logtest.At(3, 1)))) }, 9},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldOf(base.Fork(t, nil))
			c.harm(w, c.key)
			values, err := w.read(w.reader(nil), 0)
			if !errors.Is(err, reader.ErrCorrupt) || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), "`fencepost verify`") {
				t.Errorf("the error is %v", err)
			}
			if !slices.Equal(values, w.History()[:c.want]) {
				t.Errorf("before it there are %q", values)
			}
		})
	}
}

func TestOpenErrors(t *testing.T) {
	if _, err := reader.Open(t.Context(), memstore.New(nil), nil); !errors.Is(err, reader.ErrNotInitialized) {
		t.Errorf("no log: %v", err)
	}
	w := newWorld(t, 0)
	w.Put(layout.FormatKey, document.Sum(layout.FormatKey, []byte(`{"format": 99}`)))
	if _, err := reader.Open(t.Context(), w.Mem, nil); !errors.Is(err, reader.ErrFormat) {
		t.Errorf("a newer log: %v", err)
	}
	w.Put(layout.FormatKey, []byte(`junk`))
	if _, err := reader.Open(t.Context(), w.Mem, nil); !errors.Is(err, reader.ErrCorrupt) {
		t.Errorf("junk: %v", err)
	}
	if _, err := reader.Open(t.Context(), nil, nil); !errors.Is(err, reader.ErrOptions) {
		t.Errorf("no store: %v", err)
	}
}

// All faults of options are reported at once, with their arithmetic, and nothing is done.
func TestOptions(t *testing.T) {
	w := newWorld(t, 0)
	r := w.reader(&reader.Options{PollMax: time.Minute})
	w.Faulty.ResetCounts()
	open := func(o reader.Options) error { _, err := reader.Open(t.Context(), w.Faulty, &o); return err }
	snapshot := func(o reader.SnapshotOptions) error { _, err := r.Snapshot(t.Context(), &o); return err }
	for _, c := range []struct {
		err  error
		says []string
	}{
		{open(reader.Options{PollMax: -time.Second, Concurrency: -1}), []string{"PollMax -1s must be positive", "Concurrency -1 "}},
		{open(reader.Options{Prefetch: -1}), []string{"Prefetch of -1 bytes"}},
		{open(reader.Options{Concurrency: 5000}), []string{"Concurrency 5000 must be 0 (for the default) to 4096"}},
		{snapshot(reader.SnapshotOptions{TTL: time.Millisecond}), []string{"TTL 1ms is too short"}},
		{r.Unpin(t.Context(), ""), []string{"needs the name"}},
		{func() error { _, err := r.Pin(t.Context(), "", 0, time.Millisecond); return err }(), []string{"a pin needs a name"}},
		{func() error { _, err := r.Pin(t.Context(), "x", 0, time.Millisecond); return err }(), []string{"ttl 1ms is too short"}},
	} {
		for _, says := range c.says {
			if !errors.Is(c.err, reader.ErrOptions) || !strings.Contains(c.err.Error(), says) {
				t.Errorf("%v does not say %q", c.err, says)
			}
		}
	}
	if n := w.Faulty.Counts().Of("", ""); n > 0 {
		t.Errorf("%d requests", n)
	}
	if err := errors.Join((*reader.Options)(nil).Validate(), (*reader.SnapshotOptions)(nil).Validate()); err != nil {
		t.Error(err)
	}
}

// A loop ends with ctx and its cause, at any request and in any pause, and nothing stays
// open.
func TestEndsWithContext(t *testing.T) {
	base := sample(t)
	for n := 1; n < 40; n++ {
		inBubbleFork(t, base, func(w *world) {
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if op.ClientN == n+1 {
					time.AfterFunc(time.Second, func() { cancel(cause) })
					return faultstore.Fault{Hang: true}
				}
				return faultstore.Fault{Delay: time.Millisecond}
			})
			g := got{}
			var last error
			for rec, err := range w.reader(nil).Tail(ctx, 0) {
				if last != nil {
					t.Errorf("something comes after %v", last)
				}
				if last = err; err == nil {
					if err := g.add(rec); err != nil {
						t.Error(err)
					}
				}
			}
			if !errors.Is(last, cause) {
				t.Errorf("stopped at request %d, the last error is %v", n, last)
			}
			if w.Faulty.OpenBodies() != 0 {
				t.Errorf("stopped at request %d, %d bodies are open", n, w.Faulty.OpenBodies())
			}
		})
	}
}

// A caller that breaks off at any record gets no more, and nothing stays open.
func TestBreak(t *testing.T) {
	base := sample(t)
	for k := range len(base.History()) {
		inBubbleFork(t, base, func(w *world) {
			n := 0
			for range w.reader(nil).Tail(context.Background(), 0) {
				if n++; n > k {
					break
				}
			}
			if n != k+1 || w.Faulty.OpenBodies() != 0 {
				t.Errorf("%d records, %d open bodies", n, w.Faulty.OpenBodies())
			}
		})
	}
}

// A store that fails for longer than a read is tried ends the sequence with what it
// says; a reader that begins again at the next offset misses nothing. Failures that
// are shorter, and bodies and listings that break off, are not reported.
func TestStoreFails(t *testing.T) {
	base := sample(t)
	for name, fault := range map[string]faultstore.Fault{
		"unavailable": {Drop: true, Err: faultstore.ErrUnavailable}, "no reply": {Err: faultstore.ErrTimeout},
		"breaks off": {Cut: true, Keep: 1, Err: faultstore.ErrReset}, "ends early": {Cut: true, Keep: 1},
	} {
		for n := 1; n < 40; n++ {
			w := worldOf(base.Fork(t, nil))
			r := w.reader(nil)
			w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if op.ClientN == n+1 {
					return fault
				}
				return faultstore.Fault{}
			})
			if values, err := w.read(r, 0); err != nil || !slices.Equal(values, w.History()) {
				t.Errorf("%s, at request %d: %q, %v", name, n, values, err)
			}
			w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if op.ClientN > n+1 {
					return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
				}
				return faultstore.Fault{}
			})
			r = w.reader(nil)
			values, err := w.read(r, 0)
			var answer *store.Error
			if err != nil && (!errors.As(err, &answer) || answer.Status != 503 || errors.Is(err, reader.ErrCorrupt)) {
				t.Errorf("down from request %d: %v", n, err)
			}
			w.Faulty.SetHook(nil)
			rest, err := w.read(r, uint64(len(values)))
			if err != nil || !slices.Equal(append(values, rest...), w.History()) {
				t.Errorf("down from request %d: %q, then %q, %v", n, values, rest, err)
			}
		}
	}
}

// Values are the reader's to keep and to change, and times are those of the writer.
func TestRecordsAreTheReaders(t *testing.T) {
	w := sample(t)
	r := w.reader(nil)
	start := clock.Go().Wall()
	for range 2 {
		g := got{}
		for rec, err := range r.Read(t.Context(), 0) {
			if err == nil {
				err = g.add(rec)
			}
			if err != nil {
				t.Fatal(err)
			}
			if age := start.Sub(rec.Time); age < 0 || age > time.Hour {
				t.Errorf("record %d is %v old", rec.Offset, age)
			}
			for i := range rec.Value {
				rec.Value[i] = 0
			}
			_ = append(rec.Value, "more"...)
		}
		if !slices.Equal(g.values, w.History()) {
			t.Fatalf("read %q", g.values)
		}
	}
}

// The chain does not go on at the hint as the hint says. A reader that would begin there reads from the
// floor.
//
// guard:read-hint-fits. Without this: a leader with a bug publishes a wrong hint; a reader that wants
// only new records begins there, and finds an object that does not fit; it reports damage in a sound
// log.
func TestWrongHint(t *testing.T) {
	w := newWorld(t, 0)
	w.Lead(6)
	w.Publish(func(m *state.Change) error {
		h := *m.Hint
		h.Position, h.Offset = logtest.At(1, 4), 2
		m.Hint = &h
		return nil
	})
	for _, from := range []uint64{2, 4} {
		if values, err := w.read(w.reader(nil), from); err != nil || !slices.Equal(values, w.History()[from:]) {
			t.Errorf("from %d: %q, %v", from, values, err)
		}
	}
	// What is damaged in any case is reported, once.
	w.Put(layout.DataKey(logtest.At(1, 6)), []byte("junk"))
	values, err := w.read(w.reader(nil), 2)
	if !errors.Is(err, reader.ErrCorrupt) || len(values) != 3 {
		t.Errorf("%q, %v", values, err)
	}
}
