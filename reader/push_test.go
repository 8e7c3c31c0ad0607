package reader_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/logtest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/faultstore"
)

// source is a function of reader.Options.Push.
type source = func(ctx context.Context, at fence.Position) iter.Seq[[]byte]

// honest is a source that yields what is in the log, 20 ms later, and says each 2 s that there is no more. It ends
// at the end of an epoch.
func (w *world) honest(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for quiet := 0; ctx.Err() == nil; quiet++ {
			if key := layout.DataKey(at); w.Has(key) {
				o := w.Body(key)
				if h, err := frame.DecodeHeader(o); err != nil || h.Kind == frame.Seal || !yield(o) {
					return
				}
				at.Seq++
				quiet = 0
			} else if quiet%100 == 0 && !yield(nil) {
				return
			}
			sleep(ctx, 20*time.Millisecond)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// silent is a source that says nothing.
func silent(ctx context.Context, _ fence.Position) iter.Seq[[]byte] {
	return func(func([]byte) bool) { <-ctx.Done() }
}

// once is a source that yields these objects when it is called for the first time, and then says what next does.
func once(next source, objects ...[]byte) source {
	return first(func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
		return func(yield func([]byte) bool) {
			for _, o := range objects {
				if !yield(o) {
					return
				}
			}
			next(ctx, at)(yield)
		}
	}, next)
}

// first is a source that does what one does when it is called for the first time, and then what next does.
func first(one, next source) source {
	var called atomic.Bool
	return func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
		if called.Swap(true) {
			return next(ctx, at)
		}
		return one(ctx, at)
	}
}

// during runs f beside the test, until the function that it returns is called.
func during(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return func() { <-done }
}

// point is where the log ends: all of the writer's objects have one record.
func (w *world) point(epoch fence.Epoch, seq uint64) frame.Point {
	w.Helper()
	p := frame.Point{Position: logtest.At(epoch, seq)}
	if seq > 1 {
		h, err := frame.DecodeHeader(w.Body(layout.DataKey(logtest.At(epoch, seq-1))))
		if err != nil {
			w.Fatal(err)
		}
		p.Offset, p.Prev = h.Offset+uint64(h.Records), h.Checksum()
	}
	return p
}

// While a source is sure to miss nothing, records come without a request, and silence costs none either.
func TestPushedRecordsCostNoRequest(t *testing.T) {
	inBubble(t, 1000*time.Hour, func(t *testing.T, w *world) {
		l := w.Open(nil)
		w.Append(l, "first")
		w.least = 101
		defer during(func() {
			time.Sleep(time.Minute)
			w.Faulty.ResetCounts()
			for i := range 100 {
				w.Append(l, fmt.Sprint(i))
				time.Sleep(10 * time.Second)
			}
		})()
		var late time.Duration
		if err := w.tail(w.reader(&reader.Options{Push: w.honest}), 0, func(rec reader.Record) { late = max(late, time.Since(rec.Time)) }); err != nil {
			t.Error(err)
		}
		if n := w.Faulty.Counts().Of("", ""); n > 0 || late > 30*time.Millisecond {
			t.Errorf("%d requests; a record came %v after it was appended", n, late)
		}
		w.Close(l)
	})
}

// A reader whose source says nothing, ends at once or cannot be reached reads as without one.
func TestPushFallsBackToPolling(t *testing.T) {
	for name, push := range map[string]source{
		"says nothing": silent,
		"ends":         func(context.Context, fence.Position) iter.Seq[[]byte] { return func(func([]byte) bool) {} },
		"dies":         once(silent, nil),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1000*time.Hour, func(t *testing.T, w *world) {
				l := w.Open(nil)
				w.Append(l, "first")
				w.least = 21
				defer during(func() {
					for i := range 20 {
						time.Sleep(time.Minute)
						w.Append(l, fmt.Sprint(i))
					}
				})()
				var late time.Duration
				if err := w.tail(w.reader(&reader.Options{Push: push}), 0, func(rec reader.Record) {
					if rec.Offset > 1 {
						late = max(late, time.Since(rec.Time))
					}
				}); err != nil {
					t.Error(err)
				}
				if late > 1010*time.Millisecond {
					t.Errorf("a record came %v after it was appended", late)
				}
				w.Close(l)
			})
		})
	}
}

// Many leaders, whose objects are folded and pruned, and zombies that write into the holes: with a source a reader
// delivers what it delivers without one.
func TestPushThroughLeaderships(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		w.Lead(2)
		w.least = 2 + 30*5
		defer during(func() {
			for i := range 30 {
				l := w.Open(nil)
				for j := range 5 {
					w.Append(l, fmt.Sprint(i, j))
					time.Sleep(time.Duration(j*j) * 100 * time.Millisecond)
				}
				w.Close(l)
				before := w.Keys("")
				w.compact(2)
				w.litter(before)
			}
		})()
		if err := w.tail(w.reader(&reader.Options{Push: w.honest}), 0, nil); err != nil {
			t.Error(err)
		}
	})
}

// What is not the next object of the log is not shown, whoever pushes it, and what it hides is found.
//
// guard:push-chain. Without this check: an old leader pushes again the object that it has pushed before, or one of another
// place; the reader delivers its records at the end of the log, where other records are.
//
// guard:push-seal. Without this check: a source yields a seal that nobody has written; the reader goes on in an epoch that does
// not exist, and never sees what the leader appends.
func TestPushedJunkIsNotShown(t *testing.T) {
	type made func(w *world, p frame.Point) []byte
	for name, object := range map[string]made{
		"no object": func(*world, frame.Point) []byte { return []byte("junk") },
		"cut":       func(w *world, p frame.Point) []byte { o := w.Data(p, "x"); return o[:len(o)-1] },
		"another log": func(w *world, p frame.Point) []byte {
			f := w.Format
			f.Log = fence.ID{9}
			return logtest.On(w.TB, f, nil).Data(p, "x")
		},
		"after a gap":     func(w *world, p frame.Point) []byte { p.Position.Seq++; return w.Data(p, "x") },
		"a later epoch":   func(w *world, p frame.Point) []byte { p.Position.Epoch++; return w.Data(p, "x") },
		"an older epoch":  func(w *world, p frame.Point) []byte { p.Position.Epoch--; return w.Data(p, "x") },
		"another history": func(w *world, p frame.Point) []byte { p.Prev++; return w.Data(p, "x") },
		"another offset":  func(w *world, p frame.Point) []byte { p.Offset++; return w.Data(p, "x") },
		"shown before":    func(w *world, p frame.Point) []byte { p.Position.Seq--; return w.Data(p, "x") },
		"a seal":          func(w *world, p frame.Point) []byte { return w.Seal(p.Position, p.Position.Epoch+1) },
		"too large": func(w *world, p frame.Point) []byte {
			return w.Data(p, strings.Repeat("x", int(w.Format.Limits.Record)+1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
				w.Lead(2)
				l := w.Open(nil)
				w.Append(l, "a")
				w.Append(l, "b")
				w.least = 6
				junk := object(w, w.point(w.Epoch, 3))
				defer during(func() {
					time.Sleep(time.Minute)
					w.Append(l, "c")
					time.Sleep(time.Minute)
					w.Append(l, "d")
				})()
				w.patience = 10 * time.Minute
				if err := w.tail(w.reader(&reader.Options{Push: once(silent, junk)}), 0, nil); err != nil {
					t.Error(err)
				}
				w.Close(l)
			})
		})
	}
}

// A source that is behind vouches for nothing.
//
// guard:push-vouch. Without this check: a leader is deposed, and does not know; its agent goes on to say that nothing is
// acknowledged after its last object; a reader that has read further than that in the store waits for as long as it says so.
func TestSourceThatIsBehindVouchesForNothing(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
		l := w.Open(nil)
		w.Append(l, "first")
		behind := func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
			return func(yield func([]byte) bool) {
				sleep(ctx, 10*time.Second) // the reader goes on meanwhile
				for ctx.Err() == nil && yield(nil) {
					sleep(ctx, time.Second)
				}
			}
		}
		defer during(func() {
			for i := range 100 {
				time.Sleep(time.Second)
				w.Append(l, fmt.Sprint(i))
			}
		})()
		w.least = 101
		var late time.Duration
		if err := w.tail(w.reader(&reader.Options{Push: behind}), 0, func(rec reader.Record) {
			if rec.Offset > 1 {
				late = max(late, time.Since(rec.Time))
			}
		}); err != nil {
			t.Error(err)
		}
		if late > 1010*time.Millisecond {
			t.Errorf("a record came %v after it was appended", late)
		}
		w.Close(l)
	})
}

// A leader that was deposed pushes what fits the log and was never acknowledged. No check can tell before. The reader
// finds it out before it delivers anything else.
//
// guard:push-compare. Without this check: leader A has sent slot 2, which its successor B has sealed; A's agent pushes it all
// the same; a reader delivers its records and waits at slot 3, which nobody ever writes; when the log is folded it goes on
// after as many records of B as A has pushed, which it never delivers.
func TestPushedAndNotInTheLog(t *testing.T) {
	for name, sealed := range map[string]bool{"sealed": true, "empty": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
				a := w.Open(nil)
				w.Append(a, "first")
				w.Append(a, "second")
				zombie := w.Data(w.point(w.Epoch, 3), "never acknowledged")
				if sealed {
					b := w.Open(nil)
					w.Append(b, "of the next leader")
					defer w.Close(b)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var got []string
				var failed error
				// It begins after the first record, by the manifest's hint if there is one.
				for rec, err := range w.reader(&reader.Options{Push: once(silent, zombie)}).Tail(ctx, 1) {
					if failed = err; err == nil {
						got = append(got, string(rec.Value))
					}
				}
				if sealed {
					// The look came first: nothing was pushed to a place where a seal was.
					if want := w.History()[1:]; !slices.Equal(got, want) {
						t.Errorf("%q, %v", got, failed)
					}
				} else if !errors.Is(failed, reader.ErrCorrupt) || !strings.Contains(failed.Error(), "read again from record 2 on") || !slices.Equal(got, []string{"second", "never acknowledged"}) {
					t.Errorf("%q, %v", got, failed)
				}
				_ = a.Close(t.Context())
			})
		})
	}
}

// The seal comes between the reader's look and the push. What the reader was pushed is not in the log either when the log is folded,
// and pruned, before the reader looks.
//
// guard:push-folded. Without this check: leader A's agent pushes what was never acknowledged; its successor B goes on at that offset,
// and its records are folded before the reader looks; the reader finds that the floor has moved, and goes on after as many records
// of B as A has pushed, which it never delivers.
func TestPushedWhereASealIs(t *testing.T) {
	for name, how := range map[string]struct {
		grace time.Duration
		fold  bool
	}{"sealed": {10 * time.Minute, false}, "folded": {10 * time.Minute, true}, "folded and pruned": {0, true}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, how.grace, func(t *testing.T, w *world) {
				a := w.Open(nil)
				w.Append(a, "first")
				zombie := w.Data(w.point(w.Epoch, 2), "never acknowledged")
				push := func(ctx context.Context, _ fence.Position) iter.Seq[[]byte] {
					return func(yield func([]byte) bool) {
						if !yield(nil) {
							return
						}
						b := w.Open(nil)
						w.Append(b, "of the next leader")
						w.Append(b, "and another one")
						w.Close(b)
						if how.fold {
							w.compact(8)
						}
						if yield(zombie) {
							<-ctx.Done()
						}
					}
				}
				push = first(push, silent)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var got []string
				var failed error
				for rec, err := range w.reader(&reader.Options{Push: push}).Tail(ctx, 0) {
					if failed = err; err == nil {
						got = append(got, string(rec.Value))
					}
				}
				if !errors.Is(failed, reader.ErrCorrupt) || !slices.Equal(got, []string{"first", "never acknowledged"}) {
					t.Errorf("%q, %v", got, failed)
				}
				_ = a.Close(t.Context())
			})
		})
	}
}

// What was pushed is folded and pruned while the source vouches for the reader. When the source is gone, the reader finds that all is
// well, once, and reads as without a source.
func TestPushedAndPruned(t *testing.T) {
	inBubble(t, 0, func(t *testing.T, w *world) {
		l := w.Open(nil)
		w.Append(l, "first")
		var gone atomic.Bool
		push := func(ctx context.Context, at fence.Position) iter.Seq[[]byte] {
			return func(yield func([]byte) bool) {
				for o := range w.honest(ctx, at) {
					if gone.Load() || !yield(o) {
						return
					}
				}
			}
		}
		w.least, w.patience = 5, 3*time.Hour
		requests := 0
		defer during(func() {
			for _, v := range []string{"a", "b", "c"} {
				time.Sleep(5 * time.Second)
				w.Append(l, v)
			}
			time.Sleep(5 * time.Second)
			w.compact(8)
			gone.Store(true)
			time.Sleep(time.Minute)
			w.Faulty.ResetCounts()
			time.Sleep(time.Hour)
			requests = w.Faulty.Counts().Of("", "")
			w.Append(l, "d")
		})()
		if err := w.tail(w.reader(&reader.Options{Push: push}), 0, nil); err != nil {
			t.Error(err)
		}
		if requests > 3700 {
			t.Errorf("%d requests in an hour", requests)
		}
		w.Close(l)
	})
}

// A source whose function does not return keeps nobody from reading.
func TestSourceThatBlocks(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
		l := w.Open(nil)
		w.Append(l, "first")
		blocks := func(ctx context.Context, _ fence.Position) iter.Seq[[]byte] {
			<-ctx.Done()
			return func(func([]byte) bool) {}
		}
		w.least = 2
		defer during(func() {
			time.Sleep(time.Minute)
			w.Append(l, "second")
		})()
		if err := w.tail(w.reader(&reader.Options{Push: blocks}), 0, nil); err != nil {
			t.Error(err)
		}
		w.Close(l)
	})
}

// A source is at most one object ahead of the caller of the loop, and a flood of what was shown before does not keep
// the reader from what is new.
func TestSourceThatFloods(t *testing.T) {
	inBubble(t, 10*time.Minute, func(t *testing.T, w *world) {
		l := w.Open(nil)
		w.Append(l, "first")
		var yielded atomic.Int64
		var objects [][]byte
		p := w.point(w.Epoch, 2)
		for i := range 1000 {
			o := w.Data(p, fmt.Sprint(i))
			h, err := frame.DecodeHeader(o)
			if err != nil {
				t.Fatal(err)
			}
			objects, p = append(objects, o), p.After(&h, nil)
		}
		push := func(context.Context, fence.Position) iter.Seq[[]byte] {
			return func(yield func([]byte) bool) {
				for _, o := range objects {
					if yielded.Add(1); !yield(o) {
						return
					}
				}
			}
		}
		n := int64(0)
		for _, err := range w.reader(&reader.Options{Push: push}).Tail(t.Context(), 0) {
			time.Sleep(time.Second)
			if n++; err != nil || n == 100 {
				break
			}
			if ahead := yielded.Load() - n; ahead > 1 {
				t.Fatalf("the source is %d objects ahead", ahead)
			}
		}
		w.Close(l)

		first := w.Body(layout.DataKey(logtest.At(1, 1)))
		flood := func(ctx context.Context, _ fence.Position) iter.Seq[[]byte] {
			return func(yield func([]byte) bool) {
				for range 2000 {
					if !yield(first) {
						return
					}
				}
				<-ctx.Done()
			}
		}
		l = w.Open(nil)
		w.least = 3
		defer during(func() {
			time.Sleep(time.Second)
			w.Append(l, "second")
			time.Sleep(time.Second)
			w.Append(l, "third")
		})()
		if err := w.tail(w.reader(&reader.Options{Push: flood}), 0, nil); err != nil {
			t.Error(err)
		}
		w.Close(l)
	})
}

// A source that comes again and again without an object is asked once in PollMax, and a new leader's at once.
func TestSourceIsAskedAgain(t *testing.T) {
	inBubble(t, 1000*time.Hour, func(t *testing.T, w *world) {
		l := w.Open(nil)
		w.Append(l, "first")
		var calls atomic.Int64
		push := func(context.Context, fence.Position) iter.Seq[[]byte] {
			calls.Add(1)
			return func(func([]byte) bool) {}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range w.reader(&reader.Options{Push: push}).Tail(ctx, 0) {
		}
		if n := calls.Load(); n < 20 || n > 61 {
			t.Errorf("%d calls in a minute", n)
		}
		w.Close(l)
		if c := w.Faulty.Counts(); c.Of(faultstore.Put, "") > 0 {
			t.Error(c)
		}
	})
}
