package reader_test

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// scripts are what others do while a reader pauses.
var scripts = map[string]func(w *world){
	"folded":         func(w *world) { w.compact(8) },
	"merged":         func(w *world) { w.compact(2) },
	"another leader": func(w *world) { w.Lead(2) },
	"led and folded": func(w *world) { w.Lead(2); w.compact(2) },
	"folded and led": func(w *world) { w.compact(2); w.Lead(2) },
	"a month": func(w *world) {
		w.compact(2)
		w.Lead(2)
		w.compact(8)
		w.Lead(1)
		w.Lead(1)
		w.compact(2)
		w.Lead(1)
	},
	"junk in the holes": func(w *world) { before := w.Keys(""); w.Lead(2); w.compact(2); w.litter(before); w.Lead(1) },
}

// Wherever a reader is, before the floor or after it, when everything around it is folded,
// merged and pruned without any grace: each record comes once.
func TestMovedAtEveryRecord(t *testing.T) {
	tried := test.Square(len(scripts), 2)
	for i, name := range slices.Sorted(maps.Keys(scripts)) {
		script := scripts[name]
		t.Run(name, func(t *testing.T) {
			for j, ahead := range []int{1, 64} {
				if !tried(i, j) {
					continue
				}
				base := sample(t)
				for k := range len(base.History()) {
					inBubbleFork(t, base, func(w *world) {
						r := w.reader(&reader.Options{Concurrency: ahead})
						done := false
						err := w.tail(r, 0, func(rec reader.Record) {
							if rec.Offset == uint64(k) && !done {
								done = true
								script(w)
							}
						})
						if err != nil {
							t.Errorf("at record %d, %d ahead: %v", k, ahead, err)
						}
						// And from there on, as one that comes back.
						if err := w.tail(w.reader(&reader.Options{Concurrency: ahead}), uint64(k), nil); err != nil {
							t.Errorf("from record %d: %v", k, err)
						}
					})
				}
			}
		})
	}
}

func inBubbleFork(t *testing.T, base *world, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(worldOf(base.Fork(t, nil))) })
}

// The same before each of its requests: for one that tails and for one that reads to the
// end, from the beginning or from the middle. What was acknowledged before it began is
// there.
func TestMovedAtEveryRequest(t *testing.T) {
	tried := test.Square(4, 3)
	for i, name := range []string{"led and folded", "folded and led", "a month", "junk in the holes"} {
		script := scripts[name]
		t.Run(name, func(t *testing.T) {
			base := sample(t)
			for j, from := range []uint64{0, 13, 16} {
				if !tried(i, j) {
					continue
				}
				for n := 1; ; n++ {
					var reached func() bool
					inBubbleFork(t, base, func(w *world) {
						w.patience = 5 * time.Second
						begun := time.Now()
						tailing := w.reader(&reader.Options{Concurrency: 4})
						reached = w.Faulty.BeforeFirst(func(op faultstore.Op) bool {
							// After the format, and while there is time to find out what comes of it.
							return op.ClientN == n+1 && time.Since(begun) < 3*time.Second
						}, func(context.Context) { script(w) })
						if err := w.tail(tailing, from, nil); err != nil && reached() {
							t.Errorf("tail from %d, moved at request %d: %v", from, n, err)
						}
					})
					over := !reached()
					inBubbleFork(t, base, func(w *world) {
						reading := w.reader(&reader.Options{Concurrency: 4})
						least := w.History()
						reached = w.Faulty.BeforeFirst(func(op faultstore.Op) bool { return op.ClientN == n+1 }, func(context.Context) { script(w) })
						values, err := w.read(reading, from)
						if want := w.History(); err != nil || len(values)+int(from) < len(least) || !slices.Equal(values, want[from:int(from)+len(values)]) {
							t.Errorf("read from %d, moved at request %d: %q, %v", from, n, values, err)
						}
					})
					if over && !reached() || t.Failed() {
						break
					}
				}
			}
		})
	}
}

// A segment of many blocks is merged and pruned while a reader is in the middle of
// it, and its further requests find nothing.
//
// guard:read-merged. Without this check: a slow reader has found segment s in manifest 5; a compactor
// merges segment s into another one, and deletes it after the grace period; the reader does not find
// segment s, and reports damage in a sound log.
func TestMergedInTheMiddle(t *testing.T) {
	w := newWorld(t, 0)
	w.segments = 0 // the default
	rng := rand.NewChaCha8([32]byte{})
	for range 2 {
		wr := w.Open(nil)
		for range 18 {
			big := make([]byte, 1<<20)
			_, _ = rng.Read(big)
			if _, err := wr.Append(t.Context(), [][]byte{big}); err != nil {
				t.Fatal(err)
			}
			w.Appended(string(big))
		}
		w.Close(wr)
		w.compact(8)
	}
	old := w.Newest().Segments[0].Key
	r := w.reader(nil)
	var missed atomic.Int64
	w.Faulty.SetAfter(func(_ context.Context, op faultstore.Op, err error) {
		if op.Key == old && err != nil {
			missed.Add(1)
		}
	})
	g := got{}
	for rec, err := range r.Read(t.Context(), 0) {
		if err == nil {
			err = g.add(rec)
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Offset == 1 {
			w.compact(2)
			if slices.Contains(w.Keys("segment/"), old) {
				t.Fatal("it was not merged")
			}
		}
	}
	if !slices.Equal(g.values, w.History()) || missed.Load() == 0 {
		t.Errorf("%d records of %d, %d requests found nothing", len(g.values), len(w.History()), missed.Load())
	}
}

// A reader waits at the tail. Its slot is folded and pruned, and a zombie opener's seal falls into it
// before the reader looks again. The seal leads to an object that is not in the log.
//
// guard:read-junk-seal. Without this check: slot 1/4 is pruned; opener Z, a faulty program that does
// not read the manifest after its seal, seals the hole 1/4, and appends to slot 2/1; a slow reader
// comes to slot 1/4, follows this seal, and delivers Z's records, which are not in the log.
func TestT1_JunkSealAtTheTail(t *testing.T) {
	inBubble(t, time.Hour, func(t *testing.T, w *world) {
		w.Lead(3)
		w.least = 8
		slot := *w.Newest().Hint
		time.AfterFunc(time.Minute, func() {
			w.Lead(3)
			w.compact(2)
			w.Lead(2)
			junk := w.Seal(slot.Position, 99)
			w.Put(layout.DataKey(slot.Position), junk) // as if it had been a slot of data, and pruned
			f, err := frame.Decode(junk, w.Format.Limits)
			if err != nil {
				t.Error(err)
				return
			}
			w.Put(layout.DataKey(logtest.At(99, 1)), w.Data(slot.After(&f.Header, nil), "junk"))
		})
		if err := w.tail(w.reader(nil), 0, nil); err != nil {
			t.Error(err)
		}
	})
}

// An idle reader whose slot was pruned notices that within half of the grace period and one pause, and
// goes on in the segments.
func TestT1_PrunedIsNotTheTail(t *testing.T) {
	const grace = 10 * time.Minute
	inBubble(t, grace, func(t *testing.T, w *world) {
		w.Lead(3)
		w.least = 6
		slot := *w.Newest().Hint
		var since time.Time
		time.AfterFunc(time.Hour/2, func() {
			since = time.Now()
			w.Lead(3)
			w.compact(2)
			w.Remove(layout.DataKey(slot.Position)) // as if it had been a slot of data, and pruned
		})
		err := w.tail(w.reader(nil), 0, func(rec reader.Record) {
			if took := time.Since(since); rec.Offset == 3 && took > grace/2+2*time.Second {
				t.Errorf("it took %v", took)
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A complete read whose first absent slot was pruned as it got there goes on. A listing of
// manifests with junk of all kinds in its holes does not disturb it.
func TestT37_CompleteRead(t *testing.T) {
	base := sample(t)
	w := worldOf(base.Fork(t, nil))
	before := w.Keys("")
	slot := layout.DataKey(logtest.At(4, 3))
	pruned := w.Faulty.BeforeFirst(func(op faultstore.Op) bool { return op.Key == slot }, func(context.Context) {
		w.Lead(3)
		w.compact(2)
		w.Lead(1)
		w.litter(slices.DeleteFunc(before, func(key string) bool { return key == slot }))
	})
	values, err := w.read(w.reader(&reader.Options{Concurrency: 1}), 0)
	if err != nil || !pruned() || !slices.Equal(values, w.History()) {
		t.Errorf("read %q, %v; want %q", values, err, w.History())
	}
	if n := len(w.Keys(layout.ManifestPrefix)); n < 5 {
		t.Errorf("there is no junk: %d manifests", n)
	}
}

// Readers follow while leaders take over from each other and a compactor folds,
// merges and prunes, all at once and without any grace.
func TestTailBesideWork(t *testing.T) {
	w := newWorld(t, 0)
	const rounds, per = 12, 5
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		values []string
		err    error
	}
	results := make(chan result)
	for i := range 3 {
		r := w.reader(&reader.Options{PollMax: 3 * time.Millisecond, Concurrency: 1 + 8*i})
		go func() {
			g := got{}
			var err error
			for rec, rerr := range r.Tail(ctx, 0) {
				if err = rerr; err == nil {
					err = g.add(rec)
				}
				if err != nil || len(g.values) == rounds*per {
					break
				}
			}
			results <- result{g.values, err}
		}()
	}
	for i := range rounds {
		w.Lead(per)
		w.compact(2 + i%3)
	}
	for range 3 {
		if r := <-results; r.err != nil || !slices.Equal(r.values, w.History()) {
			t.Errorf("read %d records, %v; want %d", len(r.values), r.err, len(w.History()))
		}
	}
}
