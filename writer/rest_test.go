package writer_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/fixture"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// goroutines is how many goroutines writers have when none of them can go on.
func goroutines() (n int) {
	synctest.Wait()
	stacks := make([]byte, 1<<20)
	for g := range bytes.SplitSeq(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
		if bytes.Contains(g, []byte("/writer.(*Writer).")) || bytes.Contains(g, []byte("/writer.(*crew).")) {
			n++
		}
	}
	return n
}

// An idle writer has no goroutine: neither one that was just opened, nor one that has appended. What
// is appended after that is sent and checkpointed as before.
func TestRest(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Checkpoint: time.Minute})
		if n := goroutines(); n != 0 {
			t.Errorf("%d goroutines of a writer that was just opened", n)
		}
		for i := range uint64(3) {
			e.append(w, fmt.Sprint(i))
			if goroutines() == 0 {
				t.Error("nobody awaits the next checkpoint")
			}
			time.Sleep(61 * time.Second)
			synctest.Wait()
			if want := at(1, 2+i); e.hint() != want {
				t.Errorf("the hint is %v, want %v", e.hint(), want)
			}
			if goroutines() == 0 {
				t.Error("it rests after an interval with an append")
			}
			time.Sleep(time.Minute)
			if n := goroutines(); n != 0 {
				t.Errorf("%d goroutines of a writer that is idle for a minute", n)
			}
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		e.holds("0", "1", "2")
	})
}

// A writer without checkpoints rests too, and still makes no checkpoint.
func TestRestWithoutCheckpoints(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Checkpoint: -1})
		for i := range 3 {
			if n := goroutines(); n != 0 {
				t.Errorf("%d goroutines of a writer that is idle", n)
			}
			e.append(w, fmt.Sprint(i))
			time.Sleep(time.Minute)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := e.Faulty.Counts().Of(faultstore.Put, layout.ManifestPrefix); n != 1 || e.hint() != at(1, 1) {
			t.Errorf("%d manifests, and the hint is %v", n, e.hint())
		}
		e.holds("0", "1", "2")
	})
}

// A request hangs for many intervals. Its append is acknowledged all the same, and a later checkpoint
// has its record.
//
// guard:rest-drained. A writer that has nothing to do rests: it ends its goroutines, and forgets its
// batches. Without this condition: a request for slot 5 hangs for two intervals between checkpoints,
// and the writer rests; slot 5 is applied; the writer no longer knows its batch, so the append never
// returns, and no checkpoint has its records.
func TestRestAwaitsWhatIsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Checkpoint: time.Minute})
		release := e.hold("a", faultstore.Put, layout.DataPrefix)
		f := e.async(w, "0")
		time.Sleep(10 * time.Minute)
		release()
		e.outcomes([]writer.Future{f}, "committed")
		time.Sleep(time.Minute)
		synctest.Wait()
		if e.hint() != at(1, 2) {
			t.Errorf("the hint is %v", e.hint())
		}
	})
}

// Appends come at the moment when the writer goes to rest.
func TestRestMeetsAppends(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Checkpoint: time.Second})
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				for j := range 100 {
					e.append(w, fmt.Sprintf("%d/%d", i, j))
					// The next checkpoint after this append finds its record, and the one after that nothing.
					time.Sleep(time.Second * time.Duration(1+(j+i)%3))
				}
			})
		}
		all.Wait()
		time.Sleep(5 * time.Second)
		if n := goroutines(); n != 0 {
			t.Errorf("%d goroutines at rest", n)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := e.Contents(); len(got) != 400 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != 400 {
			t.Errorf("%d records, want 400 different ones", len(got))
		}
	})
}

// A writer at rest keeps no memory for objects, and has none for the times of requests before it
// measures some.
func TestRestMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, record = 20, 1 << 20
		live := func() int64 {
			runtime.GC()
			runtime.GC() // what pools held until now
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		body := make([]byte, record) // stored in some hundred bytes
		busy := func() *writer.Writer {
			st := memstore.New(&memstore.Options{Clock: clock.Go()})
			if _, err := manifest.Init(t.Context(), st, &manifest.InitOptions{Probed: fixture.Probed(time.Now())}); err != nil {
				t.Fatal(err)
			}
			w, err := writer.Open(t.Context(), st, fence.NewToken(1), options(nil))
			if err != nil {
				t.Fatal(err)
			}
			for range 3 { // the memory of the first goes to those after it
				if _, err := w.Append(t.Context(), [][]byte{body}); err != nil {
					t.Fatal(err)
				}
			}
			return w
		}
		all := []*writer.Writer{busy()} // it makes what all share, such as the encoders
		before := live()
		for range writers {
			all = append(all, busy())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		each := (live() - before) / writers
		t.Logf("%d bytes for each writer", each)
		if each > record/4 {
			t.Errorf("a writer at rest takes %d bytes", each)
		}
		for _, w := range all {
			if err := w.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Ended is also called if a successor fences the writer while Open still prepares it: the first
// manifest of the writer comes after that of the successor.
func TestEndedWhileOpening(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		e.before("a", faultstore.Put, layout.ManifestPrefix, func(faultstore.Op) bool {
			e.open("b", 2, nil)
			return true
		})
		told := make(chan error, 2)
		w, err := e.try("a", 1, &writer.Options{Hooks: writer.Hooks{Ended: func(end writer.Ending) { told <- end.Err }}})
		if err != nil {
			t.Fatal(err)
		}
		<-w.Done()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(told) != 1 {
			t.Fatalf("Ended was called %d times", len(told))
		}
		e.fenced(<-told, 2)
	})
}
