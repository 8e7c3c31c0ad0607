package writer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// Close waits for all that was appended, takes nothing more, and may be called
// again, also at the same time. Nothing of the writer is left: the bubble sees to
// that in every test of this package.
func TestCloseDrains(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 1, BatchBytes: 1})
		release := e.hold("a", faultstore.Put, layout.DataPrefix)
		fs := e.several(w, "0", "1")
		blocked := make(chan error)
		go func() {
			_, err := w.AppendAsync(context.Background(), recs("2")) // there is no room
			blocked <- err
		}()
		synctest.Wait()
		closed := make(chan error, 3)
		for range cap(closed) {
			go func() { closed <- w.Close(t.Context()) }()
		}
		if err := <-blocked; kind(err) != "not" || !errors.Is(err, writer.ErrClosed) {
			t.Errorf("an append that waited for room: %v", err)
		}
		synctest.Wait()
		if len(closed) != 0 {
			t.Fatal("Close did not wait")
		}
		<-w.Done()
		if _, err := w.Append(t.Context(), recs("late")); kind(err) != "not" || !errors.Is(err, writer.ErrClosed) {
			t.Errorf("an append after Close: %v", err)
		}
		release()
		for range cap(closed) {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		e.outcomes(fs, "committed", "committed")
		if err := w.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := w.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		if !errors.Is(w.Err(), writer.ErrClosed) {
			t.Error(w.Err())
		}
		e.holds("0", "1")
	})
}

// Of several calls of Close the first whose context ends aborts the writer for all.
//
// guard:lower-slots. Without this report, the callers of those slots wait for ever. Without the wait
// before it: slot 6 meets a seal while slot 5 is in flight; slot 5 is reported as unknown; then slot 5
// is applied, and could have been acknowledged.
func TestCloseGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 1})
		e.hold("a", faultstore.Put, layout.DataPrefix)
		// Cursors alone: there is no record whose outcome could be counted.
		f, err := w.AppendAsync(t.Context(), nil, writer.Cursor([]byte("c")))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var all sync.WaitGroup
		for _, c := range []context.Context{context.Background(), ctx, context.Background()} {
			all.Go(func() {
				if err := w.Close(c); kind(err) != "unknown" || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, writer.ErrClosed) {
					t.Errorf("Close: %v", err)
				}
			})
		}
		start := time.Now()
		all.Wait()
		if took := time.Since(start); took != time.Hour {
			t.Errorf("gave up after %v", took)
		}
		if got := outcome(f); got != "unknown" {
			t.Errorf("the outcome is %s", got)
		}
		if err := w.Flush(t.Context()); kind(err) != "unknown" {
			t.Errorf("Flush: %v", err)
		}
	})
}

// The store goes on answering nothing while the first manifest, or the last, is
// written. No append depends on it, so Close returns nil all the same.
func TestCloseDuringManifest(t *testing.T) {
	for name, idle := range map[string]bool{"first": true, "last": false} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			if idle {
				e.hold("a", faultstore.Put, layout.ManifestPrefix)
			}
			w := e.open("a", 1, nil)
			if !idle {
				e.hold("a", faultstore.Put, layout.ManifestPrefix)
			}
			e.append(w, "0")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			start := time.Now()
			if err := w.Close(ctx); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != time.Minute {
				t.Errorf("Close took %v", took)
			}
			e.append(e.open("b", 2, nil), "b")
			e.holds("0", "b")
		}))
	}
}

// With a context that has ended Close does not wait at all, and an idle writer has
// nothing to lose by it.
func TestCloseAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, nil)
		e.append(w, "0")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := w.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// The term was over before Open returned.
func TestUntilIsOver(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		over := errors.New("term over")
		until, cancel := context.WithCancelCause(t.Context())
		cancel(over)
		w := e.open("a", 1, &writer.Options{})
		w.Until(until)
		<-w.Done()
		if _, err := w.Append(t.Context(), recs("0")); kind(err) != "not" || !errors.Is(err, writer.ErrClosed) || !errors.Is(err, over) {
			t.Errorf("error is %v", err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Errorf("nothing was lost: %v", err)
		}
		e.holds()
	})
}

// The term ends while the writer is being closed.
func TestUntilDuringClose(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		until, cancel := context.WithCancel(t.Context())
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 1, BatchBytes: 1})
		w.Until(until)
		e.hold("a", faultstore.Put, layout.DataPrefix)
		fs := e.several(w, "0", "1")
		closed := make(chan error)
		go func() { closed <- w.Close(context.Background()) }()
		synctest.Wait()
		cancel()
		if err := <-closed; kind(err) != "unknown" {
			t.Errorf("Close: %v", err)
		}
		e.outcomes(fs, "unknown", "not")
	})
}

// Flush waits for what was appended before it, and for no more.
func TestFlush(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Concurrency: 1, Window: 1, BatchBytes: 1})
		if err := w.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		releases := []func(){e.hold("a", faultstore.Put, layout.DataKey(at(1, 1))), e.hold("a", faultstore.Put, layout.DataKey(at(1, 2))), e.hold("a", faultstore.Put, layout.DataKey(at(1, 3)))}
		defer func() {
			for _, r := range releases {
				r()
			}
		}()
		e.several(w, "0", "1")
		flushed := make(chan error, 1)
		go func() { flushed <- w.Flush(context.Background()) }()
		synctest.Wait()
		releases[0]()
		synctest.Wait()
		if len(flushed) != 0 {
			t.Fatal("Flush did not wait for what was waiting to be sent")
		}
		e.several(w, "2")
		releases[1]()
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
		if e.header(at(1, 3)).Kind != 0 {
			t.Error("Flush waited for what came after it")
		}
	})
}

// A failure of the last object is heard first; Flush still waits for those before
// it, and what may be committed counts for more than what is not.
func TestFlushTellsTheWorst(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, single)
		e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		e.seal(at(1, 2), 2)
		f := e.several(w, "0")
		flushed := make(chan error, 1)
		gate := e.hold("a", faultstore.Put, layout.DataKey(at(1, 2)))
		f = append(f, e.several(w, "1")...)
		go func() { flushed <- w.Flush(context.Background()) }()
		synctest.Wait()
		gate()
		e.outcomes(f, "pending", "not")
		if len(flushed) != 0 {
			t.Fatalf("Flush returned %v before all outcomes were known", <-flushed)
		}
		abandon(w)
		if err := <-flushed; kind(err) != "unknown" {
			t.Errorf("Flush: %v", err)
		}
	})
}

// A successor that Close meets while it drains is in Err, also if nothing was lost.
func TestFencedWhileClosing(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		release := e.hold("a", faultstore.Put, layout.DataPrefix)
		f := e.async(a, "0")
		closed := make(chan error)
		go func() { closed <- a.Close(t.Context()) }()
		synctest.Wait()
		if !errors.Is(a.Err(), writer.ErrClosed) {
			t.Errorf("while it drains Err is %v", a.Err())
		}
		e.seal(at(1, 1), 2)
		release()
		if err := <-closed; kind(err) != "not" || !errors.Is(err, writer.ErrFenced) {
			t.Errorf("Close: %v", err)
		}
		e.outcomes([]writer.Future{f}, "not")
		e.fenced(a.Err(), 2)
	})
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		e.append(a, "0")
		e.open("b", 2, nil)
		if err := a.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		e.fenced(a.Err(), 2) // by its last checkpoint
		e.holds("0")
	})
}

// A writer that closes, and has all its appends in the history, is followed before its last checkpoint. That is
// how a hand-over goes, so neither a hook nor the log says that something has failed.
func TestLastCheckpointIsFenced(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		core, logs := observer.New(zap.InfoLevel)
		told := make(chan writer.Checkpoint, 8)
		a := e.open("a", 1, &writer.Options{Logger: zap.New(core), Hooks: writer.Hooks{Checkpoint: func(c writer.Checkpoint) { told <- c }}})
		if first := <-told; first.Err != nil {
			t.Error(first.Err)
		}
		e.append(a, "0")
		e.before("a", faultstore.Put, layout.ManifestPrefix, func(faultstore.Op) bool {
			e.open("b", 2, nil)
			return true
		})
		if err := a.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		e.fenced(a.Err(), 2)
		if len(told) > 0 {
			t.Errorf("the hook was told %+v", <-told)
		}
		for _, l := range logs.All() {
			if l.Message != "opened" {
				t.Errorf("the log says %q %v", l.Message, l.ContextMap())
			}
		}
		e.holds("0")
	})
}

// A writer that is fenced and has lost nothing closes without an error.
func TestCloseAfterHarmlessFencing(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, &writer.Options{Checkpoint: time.Minute})
		e.append(a, "0")
		e.open("b", 2, nil)
		time.Sleep(2 * time.Minute)
		// guard:keep-fenced. It had no traffic, and learned it from the manifest.
		e.fenced(a.Err(), 2)
		if err := a.Flush(t.Context()); err != nil {
			t.Errorf("Flush: %v", err)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		e.holds("0")
	})
}
