package writer_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// The reply is lost, and the retry meets one's own write. It is no fence.
func TestT05_OwnWriteIsNoFence(t *testing.T) {
	for name, fault := range map[string]faultstore.Fault{
		"reply lost":         {Err: faultstore.ErrReset},
		"unavailable, after": {Err: faultstore.ErrUnavailable},
		"conflict, after":    {Err: faultstore.ErrConflict},
		"echo":               {Err: faultstore.ErrEcho},
		"sent twice":         {Late: &faultstore.Late{Ops: 1}},
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			for _, client := range []string{"a", "b"} { // seals and data alike
				e.fault(faultstore.Rule{Client: client, Kind: faultstore.Put, Times: -1, Fault: fault})
			}
			a := e.open("a", 1, single)
			for _, v := range []string{"0", "1"} {
				e.append(a, v)
			}
			b := e.open("b", 2, single)
			e.append(b, "2")
			e.holds("0", "1", "2")
		}))
	}
}

// The request failed or was refused and nothing is there: the same bytes go to the
// same slot again, never to another one.
func TestT06_SameBytesSameSlot(t *testing.T) {
	for name, err := range map[string]error{"reset": faultstore.ErrReset, "refused": faultstore.ErrEcho, "T07_conflict": faultstore.ErrConflict} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, single)
			e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Times: 3, Fault: faultstore.Fault{Drop: true, Err: err}})
			e.append(a, "0")
			e.holds("0")
			puts := slices.DeleteFunc(e.sequence("a"), func(s string) bool { return !strings.HasPrefix(s, "put data/1/") })
			if want := slices.Repeat([]string{"put data/1/1"}, 4); !slices.Equal(puts, want) {
				t.Errorf("sent %q", puts)
			}
		}))
	}
}

// A request whose client gave up lands much later: onto its equal, onto the seal
// that a successor put there, or first.
func TestT09_LateRequest(t *testing.T) {
	late := faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{Copies: 2}}
	t.Run("equal", bubbled(func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Fault: late})
		e.append(a, "0")
		e.append(a, "1")
		if n := e.Faulty.Release(t.Context(), nil); n != 2 {
			t.Fatalf("%d requests were late", n)
		}
		e.append(a, "2")
		e.holds("0", "1", "2")
	}))
	for _, first := range []string{"seal", "request"} {
		t.Run(first+" first", bubbled(func(t *testing.T, e *env) {
			a := e.open("a", 1, single)
			e.append(a, "0")
			crash := late
			crash.Crash = true
			e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Fault: crash})
			f := e.async(a, "1", writer.Cursor([]byte("one")))
			e.outcomes([]writer.Future{f}, "unknown")
			want, cursor := []string{"0"}, ""
			if first == "request" {
				e.Faulty.Release(t.Context(), nil)
				want, cursor = []string{"0", "1"}, "one"
			}
			b := e.open("b", 2, nil)
			e.Faulty.Release(t.Context(), nil)
			if string(b.Recovered().Cursor) != cursor {
				t.Errorf("recovered %+v", b.Recovered())
			}
			e.append(b, "b")
			e.holds(append(want, "b")...)
		}))
	}
}

// The store turns slot 2 away for good: it and all after it are certainly lost, whether they landed or
// not; what is before it goes on.
//
// guard:rejected. Without this rule: the writer's credentials expire; the store answers the first
// request for slot 5 with 403, and stores nothing; the appends of slot 5 are reported as unknown,
// although they are certainly not in the log.
func TestRejected(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		gate := make(chan struct{})
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: layout.DataKey(at(1, 2)), Fault: faultstore.Fault{Hold: gate, Drop: true, Err: faultstore.ErrDenied}})
		fs := e.several(a, "0", "1", "2")
		if e.header(at(1, 3)).Kind != frame.Data {
			t.Fatal("slot 3 has not landed")
		}
		close(gate)
		e.outcomes(fs, "pending", "not", "not")
		if err := a.Err(); !errors.Is(err, store.ErrDenied) || errors.Is(err, writer.ErrFenced) {
			t.Errorf("error is %v", err)
		}
		release()
		e.outcomes(fs, "committed", "not", "not")
		if err := a.Close(t.Context()); kind(err) != "not" || !errors.Is(err, store.ErrDenied) {
			t.Errorf("Close: %v", err)
		}
		e.append(e.open("b", 2, nil), "b")
		e.holds("0", "b")
	})
}

// A rejection after an attempt that may have been applied is not certain.
func TestRejectedAfterALostReply(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Put, Fault: faultstore.Fault{Err: faultstore.ErrReset}})
		e.fault(faultstore.Rule{Client: "a", Kind: faultstore.Get, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}})
		e.outcomes(e.several(a, "0"), "unknown")
		e.holds("0")
	})
}

// stopClock lets a test act while an object is encoded, before it is sent.
type stopClock struct {
	clock.Clock
	wall func()
}

func (c *stopClock) Wall() time.Time {
	if c.wall != nil {
		c.wall()
	}
	return c.Clock.Wall()
}

// The writer is stopped while an object is being encoded. It is not sent any more, so it is certainly
// lost; the one before it is unknown.
//
// guard:never-sent. All slots after it are reported so too, even applied ones: the chain does not pass
// an empty slot, and a successor seals it. Without this check: the writer is halted before its first
// request for slot 5; the appends of slot 5 are reported as unknown, although they are certainly not in
// the log.
func TestStoppedBeforeSending(t *testing.T) {
	for _, how := range []string{"until", "fenced"} {
		t.Run(how, bubbled(func(t *testing.T, e *env) {
			until, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := &stopClock{Clock: clock.Go()}
			opts := *single
			opts.Clock = c
			a := e.open("a", 1, &opts)
			a.Until(until)
			release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
			fs := e.several(a, "0")
			want := "unknown"
			if how == "fenced" {
				e.seal(at(1, 1), 2)
				want = "not"
			}
			c.wall = func() {
				if how == "fenced" {
					release()
				} else {
					cancel()
				}
				<-a.Done()
			}
			fs = append(fs, e.several(a, "1")...)
			e.outcomes(fs, want, "not")
			if slices.Contains(e.sequence("a"), "put data/1/2") {
				t.Error("slot 2 was sent although the writer had stopped")
			}
		}))
	}
}

// A caller stops waiting. The slot goes on, and the outcome can still be asked for.
//
// guard:slot-context. Without this rule: callers A and B append through one writer; A's ctx ends while
// the request for A's slot is in flight; the request is cancelled, so the outcome of the slot is
// unknown; the writer stops, and B's next append fails.
func TestCancelledWait(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		a := e.open("a", 1, single)
		release := e.hold("a", faultstore.Put, layout.DataKey(at(1, 1)))
		ctx, cancel := context.WithCancelCause(t.Context())
		bored := errors.New("bored")
		f, err := a.AppendAsync(ctx, recs("0"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		cancel(bored)
		synctest.Wait()
		if _, err := f.Wait(ctx); kind(err) != "unknown" || !errors.Is(err, bored) {
			t.Errorf("Wait: %v", err)
		}
		if err := a.Flush(ctx); kind(err) != "unknown" || !errors.Is(err, bored) {
			t.Errorf("Flush: %v", err)
		}
		if _, err := a.Append(ctx, recs("no")); kind(err) != "not" || !errors.Is(err, bored) {
			t.Errorf("an append whose context had ended: %v", err)
		}
		release()
		e.outcomes([]writer.Future{f}, "committed")
		if off, err := f.Wait(ctx); err != nil || off != 0 {
			t.Error(off, err) // done: the context does not matter
		}
		e.append(a, "1")
		e.holds("0", "1")
	})
}

// What is over a limit is refused whole, and the writer goes on.
func TestTooLarge(t *testing.T) {
	limits := fence.Limits{Object: 100, Record: 50, Cursor: 4}
	bubbleOn(t, limits, func(t *testing.T, e *env) {
		a := e.open("a", 1, nil)
		big := func(n int) []byte { return bytes.Repeat([]byte("x"), n) }
		for name, try := range map[string]func() error{
			"record": func() error { _, err := a.Append(t.Context(), [][]byte{big(1), big(51)}); return err },
			"append": func() error { _, err := a.Append(t.Context(), [][]byte{big(50), big(49)}); return err },
			"cursor": func() error { _, err := a.Append(t.Context(), recs("r"), writer.Cursor(big(5))); return err },
		} {
			err := try()
			if kind(err) != "not" || !errors.Is(err, writer.ErrTooLarge) {
				t.Errorf("%s: %v", name, err)
			}
			if !strings.Contains(err.Error(), map[string]string{"record": "51", "append": "101", "cursor": "5"}[name]) {
				t.Errorf("%s: %v does not say how large", name, err)
			}
		}
		if _, err := a.Append(t.Context(), nil); kind(err) != "not" {
			t.Errorf("nothing: %v", err)
		}
		off, err := a.Append(t.Context(), [][]byte{big(50), big(48)}, writer.Cursor(big(4)))
		if err != nil || off != 0 {
			t.Fatal(off, err)
		}
		e.holds(string(big(50)), string(big(48)))
	})
}

// Each record of what a stopped writer held has its exact outcome: 1 and 2 may
// have been applied, 3 waited and was never sent.
func TestOutcomesWhenGivenUp(t *testing.T) {
	for name, stop := range map[string]func(a *writer.Writer, cancel context.CancelFunc) error{
		"closed": func(a *writer.Writer, _ context.CancelFunc) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return a.Close(ctx)
		},
		"until": func(a *writer.Writer, cancel context.CancelFunc) error {
			cancel()
			<-a.Done()
			return a.Flush(context.Background())
		},
	} {
		t.Run(name, bubbled(func(t *testing.T, e *env) {
			until, cancel := context.WithCancel(t.Context())
			defer cancel()
			a := e.open("a", 1, &writer.Options{Concurrency: 2, Window: 2, BatchBytes: 1})
			a.Until(until)
			e.hold("a", faultstore.Put, layout.DataPrefix)
			fs := e.several(a, "0", "1", "2")
			err := stop(a, cancel)
			if kind(err) != "unknown" || !errors.Is(err, writer.ErrClosed) || !errors.Is(err, context.Canceled) {
				t.Errorf("error is %v", err)
			}
			e.outcomes(fs, "unknown", "unknown", "not")
			if !errors.Is(a.Err(), writer.ErrClosed) {
				t.Errorf("Err: %v", a.Err())
			}
		}))
	}
}

// A future of nothing is done, and says why: the zero one, and what comes with an error.
func TestFutureOfNoAppend(t *testing.T) {
	bubble(t, func(t *testing.T, e *env) {
		says := func(f writer.Future, what error, text string) {
			t.Helper()
			select {
			case <-f.Done():
			default:
				t.Errorf("%s: it is not done", text)
			}
			offset, err := f.Wait(t.Context())
			if offset != 0 || kind(err) != "not" || what != nil && !errors.Is(err, what) || !strings.Contains(err.Error(), text) {
				t.Errorf("%d, %v; want %q", offset, err, text)
			}
		}
		says(writer.Future{}, nil, "the zero Future is of no append")
		w := e.open("a", 1, nil)
		f, err := w.AppendAsync(t.Context(), nil)
		says(f, err, "nothing to append")
		f, err = w.CommitFilesAsync(t.Context(), manifest.Edit{})
		says(f, err, "changes nothing")
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		f, err = w.AppendAsync(t.Context(), [][]byte{nil})
		says(f, err, writer.ErrClosed.Error())
		f, err = w.CommitFilesAsync(t.Context(), manifest.Edit{Properties: map[string]string{"a": "b"}})
		says(f, err, writer.ErrClosed.Error())
	})
}
