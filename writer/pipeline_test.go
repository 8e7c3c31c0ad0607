package writer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// puts is how many log objects clients have sent since the counts were reset.
func (e *env) puts() int { return e.Faulty.Counts().Of(faultstore.Put, layout.DataPrefix) }

// feed appends records one by one in the background, as fast as there is room.
func (e *env) feed(w *writer.Writer, n int) (done <-chan error) {
	all := make(chan error, 1)
	go func() {
		var last writer.Future
		for i := range n {
			f, err := w.AppendAsync(context.Background(), recs(fmt.Sprint(i)))
			if err != nil {
				all <- err
				return
			}
			last = f
		}
		_, err := last.Wait(context.Background())
		all <- err
	}()
	return all
}

func (e *env) numbers(n int) {
	e.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	e.holds(want...)
}

// The first slot is not acknowledged, so no more than a window is sent, however many requests are free.
//
// guard:window. Without this check: slot 5 is late, and the leader sends 5,000 slots after it;
// successor B expects no more than a few windows, and begins a wall of seals at slot 5; the object of
// slot 5 is applied before B's seal; B finds data in each slot of its wall, and reads thousands of
// objects before it comes to a seal of its own.
func TestWindow(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 2, Window: 5, BatchBytes: 1})
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		e.Faulty.ResetCounts()
		done := e.feed(w, 30)
		synctest.Wait()
		if e.puts() != 5 || e.header(at(1, 5)).Kind == 0 || e.header(at(1, 6)).Kind != 0 {
			t.Errorf("%d slots were sent, the window is 5", e.puts())
		}
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		e.numbers(30)
		if e.puts() != 30 {
			t.Errorf("30 objects took %d requests", e.puts())
		}
	})
}

// Counted at the store, while requests take random time.
func TestInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 3, Window: 12, BatchBytes: 1})
		release := e.hold("a", faultstore.Put, layout.DataPrefix)
		e.Faulty.ResetCounts()
		done := e.feed(w, 30)
		synctest.Wait()
		if e.puts() != 3 {
			t.Errorf("%d requests are in flight, allowed are 3", e.puts())
		}
		release()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		e.numbers(30)
	})
}

// Requests that overtake one another: acknowledgements and hooks stay in order.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var slots []writer.Acknowledgement
		w := e.open("a", 1, &writer.Options{
			Concurrency: 8, Window: 32, BatchBytes: 1,
			Hooks: writer.Hooks{Acknowledged: func(s writer.Acknowledgement) { slots = append(slots, s) }},
		})
		e.Faulty.SetRates(faultstore.Rates{MaxDelay: 100 * time.Millisecond})
		if err := <-e.feed(w, 200); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the last hook
		e.numbers(200)
		if len(slots) != 200 {
			t.Fatalf("the hook was called %d times", len(slots))
		}
		waited := false
		for i, s := range slots {
			if s.Position != at(1, uint64(i)+1) || s.First != uint64(i) || s.Records != 1 || int(s.Payload) != frame.RecordSize(len(fmt.Sprint(i))) || s.Bytes != e.size(s.Position) {
				t.Fatalf("call %d is of %+v", i, s)
			}
			if s.Took < s.Answered || s.Answered < 0 || s.Answered > 100*time.Millisecond {
				t.Fatalf("took %v, answered after %v", s.Took, s.Answered)
			}
			waited = waited || s.Took > s.Answered
		}
		if !waited {
			t.Error("no request overtook another, so this tests nothing")
		}
	})
}

// Took ends with the acknowledgement, not when a slow hook has come to it.
func TestTook(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var took []time.Duration
		opts := *single
		opts.Hooks.Acknowledged = func(s writer.Acknowledgement) {
			took = append(took, s.Took)
			time.Sleep(time.Minute)
		}
		w := e.open("a", 1, &opts)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		fs := e.several(w, "0", "1")
		time.Sleep(time.Second)
		release()
		e.outcomes(fs, "committed", "committed")
		time.Sleep(time.Hour)
		synctest.Wait()
		if !slices.Equal(took, []time.Duration{time.Second, time.Second}) {
			t.Errorf("the objects took %v", took)
		}
	})
}

// What the hook says of an object's size is what the store has: less than the payload
// where it is compressed.
func TestSizesOfACompressedObject(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var slots []writer.Acknowledgement
		w := e.open("a", 1, &writer.Options{Hooks: writer.Hooks{Acknowledged: func(s writer.Acknowledgement) { slots = append(slots, s) }}})
		e.append(w, strings.Repeat("x", 1<<20))
		synctest.Wait()
		if len(slots) != 1 || int(slots[0].Payload) != frame.RecordSize(1<<20) || slots[0].Bytes != e.size(at(1, 1)) || slots[0].Bytes > 10_000 {
			t.Errorf("%+v; the object has %d bytes", slots, e.size(at(1, 1)))
		}
	})
}

// Hooks are called one at a time, though another request ends meanwhile.
func TestHooksTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		var w *writer.Writer
		var order []uint64
		opts := *single
		opts.Hooks.Acknowledged = func(s writer.Acknowledgement) {
			if s.Position.Seq == 1 {
				<-e.async(w, "1").Done() // and now its own hook wants to be called
				for range 1000 {
					runtime.Gosched()
				}
			}
			order = append(order, s.Position.Seq)
		}
		w = e.open("a", 1, &opts)
		e.append(w, "0")
		synctest.Wait()
		if !slices.Equal(order, []uint64{1, 2}) {
			t.Errorf("the order was %v", order)
		}
	})
}

// An idle pipeline sends at once; a full one lets what waits become one object.
//
// tuning:in-flight. Without this check: the store is slow, and all requests are in flight; the next
// object gets its slot with the one record that it has, and waits for a free request; the records that
// come meanwhile need one more object, and one more request is paid for.
func TestGrouping(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 4})
		start := time.Now()
		e.append(w, "0")
		if took := time.Since(start); took != 0 {
			t.Errorf("an append to an idle pipeline took %v", took)
		}
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		e.Faulty.ResetCounts()
		fs := e.several(w, "1", "2", "3", "4")
		e.outcomes(fs, "pending", "pending", "pending", "pending")
		release()
		e.outcomes(fs, "committed", "committed", "committed", "committed")
		for i, f := range fs {
			if off, _ := f.Wait(t.Context()); off != uint64(i)+1 {
				t.Errorf("record %d is at %d", i+1, off)
			}
		}
		if h := e.header(at(1, 3)); e.puts() != 2 || h.Records != 3 || h.Offset != 2 {
			t.Errorf("%d requests, the second object is %+v", e.puts(), h)
		}
		e.numbers(5)
	})
}

// BatchBytes bounds a group; an append that is larger is an object of its own.
func TestBatchBytes(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 1, BatchBytes: 20, NoCompress: true})
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		nine := string(bytes.Repeat([]byte("9"), 9)) // 10 with its length
		e.several(w, nine)
		e.several(w, nine, nine) // one group
		tell := make(chan error)
		big := string(bytes.Repeat([]byte("b"), 300))
		go func() {
			_, err := w.Append(t.Context(), recs(nine, big, nine))
			tell <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := w.AppendAsync(ctx, recs("x"))
			tell <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-tell; kind(err) != "not" || !errors.Is(err, context.Canceled) {
			t.Errorf("there is no room: %v", err)
		}
		release()
		if err := <-tell; err != nil {
			t.Fatal(err)
		}
		for seq, want := range []uint32{1, 2, 3} {
			if h := e.header(at(1, uint64(seq)+1)); h.Records != want {
				t.Errorf("object %d holds %d records", seq+1, h.Records)
			}
		}
		e.holds(nine, nine, nine, nine, big, nine)
	})
}

// What was sent and is not acknowledged is bounded; an append beyond the bound goes alone.
//
// guard:max-bytes. Without this check: the log allows objects of 1 GiB, and a program appends as much
// at a time; the store is slow; the writer holds Concurrency such objects, 16 by default, and runs out of
// memory.
func TestMaxBytes(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 8, BatchBytes: 10, MaxBytes: 25})
		release := e.hold("a", faultstore.Put, layout.DataPrefix)
		nine := string(bytes.Repeat([]byte("9"), 9))
		e.Faulty.ResetCounts()
		fs := e.several(w, nine, nine, nine)
		if e.puts() != 2 {
			t.Errorf("%d objects of 10 bytes were sent, MaxBytes is 25", e.puts())
		}
		tell := make(chan error)
		big := string(bytes.Repeat([]byte("b"), 100))
		go func() {
			_, err := w.Append(t.Context(), recs(big))
			tell <- err
		}()
		synctest.Wait()
		select {
		case err := <-tell:
			t.Fatalf("an append beyond MaxBytes did not wait: %v", err)
		default:
		}
		release()
		e.outcomes(fs, "committed", "committed", "committed")
		if err := <-tell; err != nil {
			t.Fatal(err)
		}
		e.holds(nine, nine, nine, big)
	})
}

// An append and its cursor are one object, whatever it is grouped with; the last
// committed cursor is recovered, also through leaders that set none.
func TestCursor(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 1})
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		set := func(c string, values ...string) {
			t.Helper()
			if _, err := w.AppendAsync(t.Context(), recs(values...), writer.Cursor([]byte(c))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		set("c1", "0")
		set("c2", "1", "2") // grouped, with
		set("c3", "3")
		e.async(w, "4") // without one of its own
		release()
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if h := e.header(at(1, 2)); h.Records != 4 || !h.HasCursor {
			t.Errorf("not grouped: %+v", h)
		}
		epoch := uint64(1)
		recovered := func(offset uint64, cursor string) {
			t.Helper()
			epoch++
			w = e.open(fmt.Sprint("w", epoch), fence.Epoch(epoch), nil)
			if r := w.Recovered(); r.Offset != offset || string(r.Cursor) != cursor {
				t.Fatalf("epoch %d recovered %+v, want %d and %q", epoch, r, offset, cursor)
			}
		}
		recovered(5, "c3")
		recovered(5, "c3")
		set("c4") // alone
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		recovered(5, "c4")
		e.append(w, "5")
		e.compact()
		recovered(6, "c4")
		set("", "6") // taken back
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		recovered(7, "")
		e.numbers(7)
	})
}

// A crash between two appends: what is in one object comes together or not at all.
func TestAppendIsOneAtom(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, single)
		first, err := w.AppendAsync(t.Context(), recs("0", "1", "2"), writer.Cursor([]byte("three")))
		if err != nil {
			t.Fatal(err)
		}
		e.outcomes([]writer.Future{first}, "committed")
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Fault: faultstore.Fault{Drop: true, Crash: true}})
		second, err := w.AppendAsync(t.Context(), recs("3", "4"), writer.Cursor([]byte("five")))
		if err != nil {
			t.Fatal(err)
		}
		e.outcomes([]writer.Future{second}, "unknown")
		b := e.open("b", 2, nil)
		if r := b.Recovered(); r.Offset != 3 || string(r.Cursor) != "three" {
			t.Errorf("recovered %+v", r)
		}
		e.numbers(3)
	})
}

// What is appended is copied before AppendAsync returns.
func TestRecordsAreCopied(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 1})
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		record, cursor := []byte("right"), []byte("right")
		var fs []writer.Future
		for range 2 {
			f, err := w.AppendAsync(t.Context(), [][]byte{record}, writer.Cursor(cursor))
			if err != nil {
				t.Fatal(err)
			}
			fs = append(fs, f)
			synctest.Wait()
		}
		copy(record, "wrong")
		copy(cursor, "wrong")
		release()
		e.outcomes(fs, "committed", "committed")
		e.holds("right", "right")
		if r := e.open("b", 2, nil).Recovered(); string(r.Cursor) != "right" {
			t.Errorf("recovered %q", r.Cursor)
		}
	})
}

// Compression is on unless it is turned off, and changes nothing else.
func TestCompression(t *testing.T) {
	value := string(bytes.Repeat([]byte("abc"), 1000))
	for codec, opts := range map[frame.Codec]*writer.Options{frame.Zstd: nil, frame.Plain: {NoCompress: true}} {
		bubble(t, func(t *testing.T, e *env) {
			e.append(e.open("a", 1, opts), value)
			if h := e.header(at(1, 1)); h.Codec != codec {
				t.Errorf("stored with codec %d, want %d", h.Codec, codec)
			}
			e.holds(value)
		})
	}
}

// A future that is kept does not keep the records.
func TestFutureHoldsNoRecords(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 2, BatchBytes: 1})
		committed := e.several(w, "0")
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Fault: faultstore.Fault{Hang: true}})
		fs := slices.Concat(committed, e.several(w, "1", "2"))
		if slices.Max([]int{fs[1].Held(), fs[2].Held()}) == 0 {
			t.Fatal("nothing is held even before")
		}
		abandon(w)
		e.outcomes(fs, "committed", "unknown", "not")
		for i, f := range fs {
			if f.Held() != 0 {
				t.Errorf("future %d holds %d bytes", i, f.Held())
			}
		}
	})
}

// A large append is being compressed while small ones after it are ready: they wait for its checksum,
// and the objects are one chain.
//
// guard:encode-order. Without this wait: batch 2 is small, and is packed before batch 1; the header of
// batch 2 has no checksum of batch 1; the writer acknowledges both batches; no reader accepts the
// object of batch 2.
func TestEncodingAtOnce(t *testing.T) {
	if n := runtime.GOMAXPROCS(0); n < 4 {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // encoders
	}
	large := strings.Repeat("this is compressed ", 1<<20/19)
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{BatchBytes: 1})
		var fs []writer.Future
		var want []string
		for i := range 40 {
			v := fmt.Sprint(i)
			if i%4 == 0 {
				v = large
			}
			fs, want = append(fs, e.async(w, v)), append(want, v)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e.outcomes(fs, slices.Repeat([]string{"committed"}, len(fs))...)
		if got := e.Contents(); !slices.Equal(got, want) {
			t.Errorf("%d records are not what was appended", len(got))
		}
	})
}

// As many objects are encoded at once as there are processors, and the next is taken when
// one is done, although its request goes on.
func TestEncoderIsFreeAgain(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	bubble(t, func(t *testing.T, e *env) {
		c := &stopClock{Clock: clock.Go()}
		opts := *single
		opts.Clock, opts.Concurrency, opts.Window = c, 2, 2
		w := e.open("a", 1, &opts)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		var second writer.Future
		queued := make(chan struct{})
		c.wall = func() { // while the first is encoded
			c.wall = nil
			second = e.async(w, "1")
			time.Sleep(time.Second) // until the dispatcher has seen it
			close(queued)
		}
		first := e.async(w, "0")
		<-queued
		synctest.Wait()
		if !slices.Contains(e.sequence("a"), "put data/1/2") {
			t.Error("slot 2 waits for the answer to slot 1")
		}
		release()
		e.outcomes([]writer.Future{first, second}, "committed", "committed")
	})
}
