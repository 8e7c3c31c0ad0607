package writer_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// An append lingers for others although requests are free, and no longer than it
// was told to.
func TestLinger(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Linger: 50 * time.Millisecond, Checkpoint: -1})
		e.Faulty.ResetCounts()
		start := time.Now()
		first := e.async(w, "0")
		time.Sleep(30 * time.Millisecond)
		second := e.async(w, "1")
		for _, f := range []writer.Future{first, second} {
			if _, err := f.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("the first append took %v", took)
		}
		if e.puts() != 1 {
			t.Errorf("two appends were %d objects", e.puts())
		}
		// The next one lingers anew.
		start = time.Now()
		e.append(w, "2")
		if took := time.Since(start); took != 50*time.Millisecond {
			t.Errorf("the third append took %v", took)
		}
		e.numbers(3)
	})
}

// A linger ends early when somebody waits for its end: a full object, one who has
// no room, Flush, Close.
func TestLingerEndsEarly(t *testing.T) {
	for name, end := range map[string]func(*env, *writer.Writer) error{
		"full": func(e *env, w *writer.Writer) error {
			_, err := w.AppendAsync(e.Context(), recs("12345678"))
			return err
		},
		"no room": func(e *env, w *writer.Writer) error {
			_, err := w.AppendAsync(e.Context(), recs("123456789"))
			return err
		},
		"flush": func(e *env, w *writer.Writer) error { return w.Flush(e.Context()) },
		"close": func(e *env, w *writer.Writer) error { return w.Close(e.Context()) },
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			w := e.open("a", 1, &writer.Options{Linger: time.Hour, BatchBytes: 20, Checkpoint: -1, NoCompress: true})
			f := e.async(w, "1234567890") // 11 bytes with its length
			start := time.Now()
			synctest.Wait()
			if got := outcome(f); got != "pending" {
				t.Fatalf("it did not linger: %s", got)
			}
			if err := end(e, w); err != nil {
				t.Fatal(err)
			}
			if _, err := f.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took != 0 {
				t.Errorf("it lingered on for %v", took)
			}
		}))
	}
}

// An edit lingers no more than it lets others linger: its size does not count.
func TestEditDoesNotLinger(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		w := e.open("a", 1, &writer.Options{Linger: time.Hour, Checkpoint: -1})
		f := e.async(w, "0")
		start := time.Now()
		e.commit(w, manifest.Edit{Properties: map[string]string{"a": "1"}})
		if took := time.Since(start); took != 0 || outcome(f) != "committed" {
			t.Errorf("the edit took %v, and the append before it is %s", took, outcome(f))
		}
	})
}

// A writer that is stopped does not wait for the end of a linger.
func TestLingerIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		until, cancel := context.WithCancel(t.Context())
		w := e.open("a", 1, &writer.Options{Linger: time.Hour, Until: until})
		f := e.async(w, "0")
		synctest.Wait()
		cancel()
		e.outcomes([]writer.Future{f}, "not")
	})
}

// RequestsPerSecond bounds the objects on average; after a pause a second's worth
// goes at once. What comes meanwhile shares the next object.
func TestRequestsPerSecond(t *testing.T) {
	for _, c := range []struct {
		rate  float64
		burst int
		every time.Duration
	}{{10, 10, 100 * time.Millisecond}, {1, 1, time.Second}, {0.1, 1, 10 * time.Second}} {
		t.Run(fmt.Sprint(c.rate), bubbled(func(t *testing.T, e *env) {
			w := e.open("a", 1, &writer.Options{RequestsPerSecond: c.rate, Checkpoint: -1, InFlight: 64})
			time.Sleep(time.Hour)
			start := time.Now()
			e.Faulty.ResetCounts()
			var at []time.Duration
			for i := range c.burst + 3 {
				e.append(w, fmt.Sprint(i))
				at = append(at, time.Since(start))
			}
			want := slices.Repeat([]time.Duration{0}, c.burst)
			for i := range 3 {
				want = append(want, time.Duration(i+1)*c.every)
			}
			if !slices.Equal(at, want) {
				t.Errorf("acknowledged after %v, want %v", at, want)
			}
			// Three share the next.
			e.Faulty.ResetCounts()
			e.several(w, fmt.Sprint(c.burst+3), fmt.Sprint(c.burst+4), fmt.Sprint(c.burst+5))
			if err := w.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if e.puts() != 1 || time.Since(start) != 4*c.every {
				t.Errorf("%d objects, after %v", e.puts(), time.Since(start))
			}
			// Close may have little time: what waits is one object at most.
			e.several(w, fmt.Sprint(c.burst+6), fmt.Sprint(c.burst+7))
			if err := w.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if e.puts() != 2 || time.Since(start) != 4*c.every {
				t.Errorf("%d objects, closed after %v", e.puts(), time.Since(start))
			}
			e.numbers(c.burst + 8)
		}))
	}
}

// Without a linger and a rate of requests no append takes a timer.
func TestNoTimerWithoutPace(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		c := &timers{Clock: clock.Go()}
		opts := *options(nil)
		opts.Clock, opts.Checkpoint, opts.Settle = c, -1, &store.SettleOptions{Clock: clock.Go()}
		w := e.open("a", 1, &opts)
		before := c.n.Load()
		for range 10 {
			e.append(w, "x")
		}
		if n := c.n.Load() - before; n != 0 {
			t.Errorf("10 appends took %d timers", n)
		}
	})
}
