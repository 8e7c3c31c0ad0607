package reader_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/state"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// Every offset is a place to begin, and so is what comes behind the end.
func TestFromEveryOffset(t *testing.T) {
	w := sample(t)
	r := w.reader(nil)
	for from := range uint64(len(w.want)) + 2 {
		values, err := w.read(r, from)
		if want := w.want[min(int(from), len(w.want)):]; err != nil || !slices.Equal(values, want) {
			t.Errorf("from %d: %q, %v; want %q", from, values, err, want)
		}
	}
	// One that is not there yet is waited for.
	inBubbleFork(t, w, func(w *world) {
		time.AfterFunc(time.Hour/2, func() { w.lead(4) })
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
		w.lead(0)
	}
	w.compact(2)
	if values, err := w.read(w.reader(nil), 5); err != nil || len(values) > 0 {
		t.Errorf("compacted: %q, %v", values, err)
	}
}

// Wake makes a reader look at once.
func TestWake(t *testing.T) {
	inBubble(t, time.Hour, func(t *testing.T, w *world) {
		w.lead(1)
		r := w.reader(&reader.Options{PollMax: time.Hour})
		wr := w.open()
		time.AfterFunc(30*time.Hour+10*time.Minute, func() {
			w.append(wr, "news")
			r.Wake()
			r.Wake() // does not block
		})
		start := time.Now()
		for rec, err := range r.Tail(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if rec.Offset == 1 {
				if took := time.Since(start); took != 30*time.Hour+10*time.Minute {
					t.Errorf("it came after %v", took)
				}
				break
			}
		}
		w.close(wr)
	})
}

// A reader that follows begins at the leader's hint if all before it is known.
func TestBeginsAtTheHint(t *testing.T) {
	w := newWorld(t, 0)
	w.lead(50)
	for from, cost := range map[uint64]int{50: 1, 60: 1} {
		r := w.reader(nil)
		w.faulty.ResetCounts()
		if values, err := w.read(r, from); err != nil || len(values) > 0 {
			t.Errorf("from %d: %q, %v", from, values, err)
		}
		if n := w.faulty.Counts().Of(faultstore.Get, layout.DataPrefix); n > cost {
			t.Errorf("from %d it takes %d GETs of the log", from, n)
		}
	}
	// A hint behind which there is still something of interest is of no use.
	if values, err := w.read(w.reader(nil), 49); err != nil || len(values) != 1 {
		t.Errorf("from 49: %q, %v", values, err)
	}
}

// Records before the first that is kept are gone, and the error says where the log
// begins.
func TestGone(t *testing.T) {
	w := sample(t)
	u, err := state.With(w.mem, w.format, nil).Updater(layout.Compactor, fence.NewToken(w.token+1))
	if err == nil {
		_, err = u.Update(t.Context(), func(m *state.Change) error {
			m.Segments = m.Segments[1:]
			return m.Truncate(m.Segments[0].First)
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	r := w.reader(nil)
	for _, from := range []uint64{0, 3} {
		values, err := w.read(r, from)
		if !errors.Is(err, reader.ErrGone) || len(values) > 0 || !strings.Contains(err.Error(), "begins at 4") {
			t.Errorf("from %d: %q, %v", from, values, err)
		}
	}
	if values, err := w.read(r, 4); err != nil || !slices.Equal(values, w.want[4:]) {
		t.Errorf("from 4: %q, %v", values, err)
	}
}

// Damage is told with the key, and after all the records before it.
func TestDamage(t *testing.T) {
	base := sample(t)
	segs := base.newest().Segments
	for name, c := range map[string]struct {
		key  string
		harm func(w *world, key string)
		want int // records before
	}{
		"object of the log": {layout.DataKey(at(3, 3)), func(w *world, key string) { b := w.body(key); w.put(key, b[:len(b)-1]) }, 10},
		"empty object":      {layout.DataKey(at(3, 1)), func(w *world, key string) { w.put(key, nil) }, 8},
		"a seal":            {layout.DataKey(at(3, 5)), func(w *world, key string) { w.put(key, []byte("junk")) }, 12},
		"segment missing":   {segs[1].Key, func(w *world, key string) { w.remove(key) }, 4},
		"segment cut":       {segs[1].Key, func(w *world, key string) { w.put(key, w.body(key)[:100]) }, 4},
		"segment empty":     {segs[0].Key, func(w *world, key string) { w.put(key, nil) }, 0},
		"segment flipped":   {segs[0].Key, func(w *world, key string) { b := slices.Clone(w.body(key)); b[140] ^= 1; w.put(key, b) }, 0},
		"of another log": {layout.DataKey(at(3, 1)), func(w *world, key string) {
			w.format.Log[0] ^= 1
			w.put(key, w.data(frame.Point{Position: at(3, 1), Offset: 8}, "x"))
		}, 8},
		"out of line":        {layout.DataKey(at(3, 1)), func(w *world, key string) { w.put(key, w.data(frame.Point{Position: at(3, 1), Offset: 8}, "x")) }, 8},
		"for the wrong slot": {layout.DataKey(at(3, 2)), func(w *world, key string) { w.put(key, w.body(layout.DataKey(at(3, 1)))) }, 9},
	} {
		t.Run(name, func(t *testing.T) {
			w := base.fork(t)
			c.harm(w, c.key)
			values, err := w.read(w.reader(nil), 0)
			if !errors.Is(err, reader.ErrCorrupt) || !strings.Contains(err.Error(), c.key) || !strings.Contains(err.Error(), "`fencepost verify`") {
				t.Errorf("the error is %v", err)
			}
			if !slices.Equal(values, w.want[:c.want]) {
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
	w.put(layout.FormatKey, []byte(`{"format": 99}`))
	if _, err := reader.Open(t.Context(), w.mem, nil); !errors.Is(err, reader.ErrFormat) {
		t.Errorf("a newer log: %v", err)
	}
	w.put(layout.FormatKey, []byte(`junk`))
	if _, err := reader.Open(t.Context(), w.mem, nil); !errors.Is(err, reader.ErrCorrupt) {
		t.Errorf("junk: %v", err)
	}
	for says, o := range map[string]reader.Options{
		"PollMin is -1s":                  {PollMin: -time.Second},
		"PollMin is 2s and PollMax is 1s": {PollMin: 2 * time.Second, PollMax: time.Second},
		"Ahead is -1":                     {Ahead: -1},
		"Ahead is 5000":                   {Ahead: 5000},
	} {
		if _, err := reader.Open(t.Context(), w.mem, &o); err == nil || !strings.HasPrefix(err.Error(), "reader: ") || !strings.Contains(err.Error(), says) {
			t.Errorf("want an error that says %q, got %v", says, err)
		}
	}
	w = newWorld(t, 0)
	if r := w.reader(&reader.Options{PollMin: time.Minute}); r.Format().Log != w.format.Log {
		t.Error("it has another format")
	}
}

// A loop ends with ctx, at any request and in any wait, with its cause; and nothing
// is left behind.
func TestEndsWithContext(t *testing.T) {
	base := sample(t)
	for n := 1; n < 40; n++ {
		inBubbleFork(t, base, func(w *world) {
			cause := errors.New("enough")
			ctx, cancel := context.WithCancelCause(context.Background())
			defer cancel(nil)
			w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
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
			if w.faulty.OpenBodies() != 0 {
				t.Errorf("stopped at request %d, %d bodies are open", n, w.faulty.OpenBodies())
			}
		})
	}
}

// Whoever has had enough gets no more, at whatever record, and nothing is left
// behind.
func TestBreak(t *testing.T) {
	base := sample(t)
	for k := range len(base.want) {
		inBubbleFork(t, base, func(w *world) {
			n := 0
			for range w.reader(nil).Tail(context.Background(), 0) {
				if n++; n > k {
					break
				}
			}
			if n != k+1 || w.faulty.OpenBodies() != 0 {
				t.Errorf("%d records, %d open bodies", n, w.faulty.OpenBodies())
			}
		})
	}
}

// A store that fails for longer than a read is tried ends the sequence with what it
// says; a reader that begins again at the next offset misses nothing. Failures that
// are shorter, and bodies and listings that break off, nobody hears of.
func TestStoreFails(t *testing.T) {
	base := sample(t)
	for name, fault := range map[string]faultstore.Fault{
		"unavailable": {Drop: true, Err: faultstore.ErrUnavailable}, "no reply": {Err: faultstore.ErrTimeout},
		"breaks off": {Cut: true, Keep: 1, Err: faultstore.ErrReset}, "ends early": {Cut: true, Keep: 1},
	} {
		for n := 1; n < 40; n++ {
			w := base.fork(t)
			r := w.reader(nil)
			w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if op.ClientN == n+1 {
					return fault
				}
				return faultstore.Fault{}
			})
			if values, err := w.read(r, 0); err != nil || !slices.Equal(values, w.want) {
				t.Errorf("%s, at request %d: %q, %v", name, n, values, err)
			}
			w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
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
			w.faulty.SetHook(nil)
			rest, err := w.read(r, uint64(len(values)))
			if err != nil || !slices.Equal(append(values, rest...), w.want) {
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
		if !slices.Equal(g.values, w.want) {
			t.Fatalf("read %q", g.values)
		}
	}
}
