package reader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// T30: an idle reader makes at most a request a second, readings of the manifest included.
func TestT30_IdleCost(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
		w.Lead(3)
		r := w.reader(nil)
		ctx, cancel := context.WithCancel(t.Context())
		n := 0
		time.AfterFunc(time.Minute, w.Faulty.ResetCounts)
		time.AfterFunc(time.Hour+time.Minute, cancel)
		for _, err := range r.Tail(ctx, 0) {
			if err != nil {
				break
			}
			n++
		}
		c := w.Faulty.Counts()
		if all, list := c.Of("", ""), c.Of(faultstore.List, ""); n != 3 || all > 3601 || list < 11 || list > 12 || c.Of(faultstore.Get, "")+list != all {
			t.Errorf("%d records; an hour costs %v", n, c)
		}
	})
}

// A reader that follows the log makes one LIST for each leadership that begins, and none for
// its records. Grace is longer than the test.
func TestTailListsOncePerLeadership(t *testing.T) {
	inBubble(t, 1000*time.Hour, func(t *testing.T, w *world) {
		const leaderships, each = 10, 20
		w.Lead(1)
		r := w.reader(nil)
		w.least = 1 + leaderships*each
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range leaderships {
				time.Sleep(time.Minute)
				l := w.Open(nil)
				for i := range each {
					w.Append(l, fmt.Sprint(w.Epoch, i))
					time.Sleep(time.Second)
				}
				w.Close(l)
			}
		}()
		w.Faulty.ResetCounts()
		if err := w.tail(r, 0, nil); err != nil {
			t.Error(err)
		}
		<-done
		// The first LIST finds where to begin. A leadership was there before.
		if n := w.Faulty.Counts().Of(faultstore.List, ""); n > 2+leaderships {
			t.Errorf("%d LISTs, want at most %d", n, 2+leaderships)
		}
	})
}

// T29: readers write no manifests. A tail writes nothing, and a snapshot that is open for an
// hour renews an object of its own.
func TestT29_ReadersWriteNoManifests(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
		w.Lead(3)
		r := w.reader(nil)
		w.Faulty.ResetCounts()
		s, err := r.Snapshot(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		for _, err := range r.Tail(ctx, 0) {
			if err != nil {
				break
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		c := w.Faulty.Counts()
		if all, pins := c.Of(faultstore.Put, ""), c.Of(faultstore.Put, "pin/"); all != pins || pins < 100 {
			t.Errorf("%d objects were written, %d of them pins: %v", all, pins, c)
		}
	})
}

// On a store where a GET takes 28 ms a record is in a tailing reader's hands within
// the time of two GETs after it was acknowledged, in the median, and never much
// later: when records come quickly, and when there are pauses between them.
func TestTailLatency(t *testing.T) {
	const get = 28 * time.Millisecond
	for name, between := range map[string]func(i int) time.Duration{
		"always":       func(int) time.Duration { return 0 },
		"busy":         func(i int) time.Duration { return time.Duration(3+i*7%50) * time.Millisecond },
		"now and then": func(i int) time.Duration { return time.Duration(100+i*37%150) * time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
				w.Faulty.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Delay: get / 2, ReplyDelay: get / 2} })
				wr := w.Open(nil)
				r := w.reader(nil)
				var mu sync.Mutex
				acknowledged := map[string]time.Time{}
				go func() {
					for i := range 400 {
						time.Sleep(between(i))
						v := fmt.Sprint(i)
						w.Append(wr, v) // an object in the store, at once
						mu.Lock()
						acknowledged[v] = time.Now()
						mu.Unlock()
						time.Sleep(time.Millisecond)
					}
					w.Close(wr)
				}()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				var took []time.Duration
				for rec, err := range r.Tail(ctx, 0) {
					if err != nil {
						t.Fatal(err)
					}
					mu.Lock()
					at, ok := acknowledged[string(rec.Value)]
					mu.Unlock()
					if d := time.Since(at); ok && rec.Offset > 5 { // it begins late, with a reading of the manifest
						took = append(took, d)
					}
					if rec.Offset == 399 {
						break
					}
				}
				slices.Sort(took)
				median, worst := took[len(took)/2], took[len(took)-1]
				t.Logf("median %v, 99 %% %v, worst %v", median, took[len(took)*99/100], worst)
				if median > 2*get || worst > 6*get {
					t.Errorf("median %v, worst %v; want at most %v and %v", median, worst, 2*get, 6*get)
				}
			})
		})
	}
}

// Many readers cost the store nothing but their own requests, and all of these are
// reads.
func TestManyReaders(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
		w.Lead(5)
		w.compact(2)
		w.Lead(5)
		w.patience = time.Minute
		// How many are fetched ahead in vain depends on who is first.
		opts := &reader.Options{Concurrency: 1}
		one := func() int {
			w.Faulty.ResetCounts()
			if err := w.tail(w.reader(opts), 0, nil); err != nil {
				t.Error(err)
			}
			return w.Faulty.Counts().Of("", "")
		}
		each := one()
		w.Faulty.ResetCounts()
		const many = 50
		done := make(chan error)
		for range many {
			go func() { done <- w.tail(w.reader(opts), 0, nil) }()
		}
		for range many {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		// Whether the next reading of the manifest has begun when the last record comes is a race.
		c := w.Faulty.Counts()
		if c.Of("", "") > many*(each+1) || c.Of(faultstore.Get, "")+c.Of(faultstore.List, "") != c.Of("", "") {
			t.Errorf("one reader costs %d requests, %d cost %v", each, many, c)
		}
		if len(w.Keys("pin/"))+len(w.Keys("tmp/")) > 0 {
			t.Error("they leave something behind")
		}
	})
}

// A reader pauses for a month, at every record in turn. Meanwhile leaders come and go, and
// everything is folded, merged and pruned. It misses nothing. If retention has passed it, it
// learns where the log begins, and may go on there.
func TestAMonthLate(t *testing.T) {
	month := func(w *world, retain uint64) {
		for range 8 {
			time.Sleep(4 * 24 * time.Hour)
			w.Lead(3)
			w.compact(2)
			w.compact(4)
		}
		if retain > 0 {
			w.truncate(uint64(len(w.History())) - retain)
			w.compact(2)
			time.Sleep(24 * time.Hour)
			w.compact(2)
		}
	}
	for k := 1; k < 16; k += 2 {
		inBubble(t, time.Hour, func(t *testing.T, w *world) {
			w.Lead(4)
			w.Lead(4)
			w.compact(8)
			w.Lead(4)
			w.Lead(4)
			w.patience = 40 * 24 * time.Hour
			once := false
			if err := w.tail(w.reader(nil), 0, func(rec reader.Record) {
				if rec.Offset == uint64(k) && !once {
					once = true
					month(w, 0)
				}
			}); err != nil {
				t.Errorf("at record %d: %v", k, err)
			}
		})
	}
	inBubble(t, time.Hour, func(t *testing.T, w *world) {
		w.Lead(8)
		r := w.reader(nil)
		next, stood := uint64(0), false
		var gone *reader.GoneError
		for rec, err := range r.Tail(t.Context(), 0) {
			if errors.As(err, &gone) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if next = rec.Offset + 1; next == 3 && !stood {
				stood = true
				month(w, 20)
			}
		}
		// What had been fetched before the month may still be handed out.
		if gone == nil || next < 3 || next > 8 || gone.Offset != next || gone.First <= 8 || gone.First != w.Newest().First() {
			t.Fatalf("it came to %d: %v", next, gone)
		}
		if values, err := w.read(r, gone.First); err != nil || !slices.Equal(values, w.History()[gone.First:]) {
			t.Errorf("from there: %d records, %v", len(values), err)
		}
		for rec, err := range r.Read(t.Context(), reader.Oldest) {
			if err != nil || rec.Offset != gone.First {
				t.Errorf("the oldest is %d, %v", rec.Offset, err)
			}
			break
		}
	})
}

// A caller that asks for the oldest record gets the oldest that is left, also if the one that was the
// oldest is truncated while it is being fetched.
//
// guard:read-oldest-now. Without this rule: the oldest record is 0 when the stream begins; before the
// stream has fetched anything, retention gives up records 0 to 9, and their segment is deleted; the
// caller gets ErrGone for an offset that it never named.
func TestOldestIsGivenUp(t *testing.T) {
	inBubble(t, time.Hour, func(t *testing.T, w *world) {
		w.Lead(8)
		w.compact(2)
		w.Lead(8)
		r := w.reader(nil)
		before := w.Faulty.BeforeFirst(func(op faultstore.Op) bool {
			return op.Kind == faultstore.Get && strings.HasPrefix(op.Key, "segment/")
		}, func(context.Context) {
			w.compact(2)
			w.truncate(12)
			for range 3 {
				time.Sleep(24 * time.Hour)
				w.compact(2)
			}
		})
		var first uint64
		n := 0
		for rec, err := range r.Read(t.Context(), reader.Oldest) {
			if err != nil {
				t.Fatalf("after %d records: %v", n, err)
			}
			if n++; n == 1 {
				first = rec.Offset
			}
		}
		if end := len(w.History()); !before() || first == 0 || first != w.Newest().First() || int(first)+n != end {
			t.Errorf("%d records from %d on; the log has those from %d to %d", n, first, w.Newest().First(), end)
		}
	})
}

// An object that was acknowledged and is not there is damage. Taken for the tail, it would make a log
// look shorter than it is, and nobody would know; a follower would wait there for ever.
//
// guard:read-missing. Without this check: somebody deletes an acknowledged object; a reader takes its
// slot for the end of the log; a read to the end returns too few records and no error, and a stream
// that follows the log waits there for ever.
func TestMissingObjectIsNotTheTail(t *testing.T) {
	base := newWorld(t, 0)
	base.Lead(5)
	key := layout.DataKey(logtest.At(1, 3))
	base.Remove(key)
	told := func(who string, n int, err error) {
		t.Helper()
		if !errors.Is(err, reader.ErrCorrupt) || !strings.Contains(err.Error(), key+" is missing") || !strings.Contains(err.Error(), "`fencepost verify`") {
			t.Errorf("%s: the error is %v", who, err)
		}
		if n != 2 {
			t.Errorf("%s: %d records before the missing object, want 2", who, n)
		}
	}
	inBubbleFork(t, base, func(w *world) {
		values, err := w.read(w.reader(nil), 0)
		told("read", len(values), err)

		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		n := 0
		for _, err = range w.reader(nil).Tail(ctx, 0) {
			if err == nil {
				n++
			}
		}
		told("tail", n, err)

		c, err := compactor.New(w.Mem, &compactor.Options{Token: fence.NewToken(1), Settle: logtest.Quick})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Once(context.Background())
		told("compact", 2, err)
	})
}

// After has to read a segment that is lost: that is damage, not a log that is compacted all
// the time.
func TestAfterInALostSegment(t *testing.T) {
	inTable(t, 0, func(w *table) {
		for range 10 {
			w.record(1)
			time.Sleep(time.Second)
		}
		when := w.now().time.Add(-5 * time.Second)
		w.compact(8)
		for _, s := range w.Newest().Segments {
			w.Remove(s.Key)
		}
		if _, err := w.reader(nil).After(context.Background(), when); !errors.Is(err, reader.ErrCorrupt) {
			t.Error(err)
		}
	})
}

// The hooks are told what the caller took, and when it has everything.
func TestHooksTellDeliveriesAndTheTail(t *testing.T) {
	w := sample(t)
	var got []reader.Delivery
	var tails []reader.Tail
	r, err := reader.Open(t.Context(), w.Mem, &reader.Options{Hooks: reader.Hooks{
		Delivered: func(d reader.Delivery) { got = append(got, d) },
		Tail:      func(tail reader.Tail) { tails = append(tails, tail) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	records, bytes := 0, 0
	for rec, err := range r.Read(t.Context(), 2) {
		if err != nil {
			t.Fatal(err)
		}
		records++
		bytes += len(rec.Value)
	}
	for _, d := range got {
		records -= d.Records
		bytes -= int(d.Bytes)
		if d.Records == 0 || d.Time.IsZero() {
			t.Errorf("told %+v", d)
		}
	}
	if end := got[len(got)-1].Next; records != 0 || bytes != 0 || end != 16 || len(tails) != 1 || tails[0].Offset != end {
		t.Errorf("%d records and %d bytes were not told; %+v, then %+v", records, bytes, got, tails)
	}

	// A caller that stops has taken the record at which it stops.
	got, tails = nil, nil
	for range r.Read(t.Context(), 14) {
		break
	}
	if len(got) != 1 || got[0].Records != 1 || got[0].Next != 15 || len(tails) != 0 {
		t.Errorf("a loop that stops: %+v, %+v", got, tails)
	}
	// A snapshot looks for the end of the log. Nothing is delivered by that.
	s, err := r.Snapshot(t.Context(), &reader.SnapshotOptions{Unpinned: true})
	if err != nil || len(tails) != 0 {
		t.Errorf("a snapshot: %v, %+v", err, tails)
	}
	_ = s.Close(t.Context())
}
