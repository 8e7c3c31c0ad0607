package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/frame"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// When ctx ends, Run settles the appends in flight before it frees the lock. Then the
// next candidate leads at once and need not wait for the validity.
func TestRunDrains(t *testing.T) {
	for i := range 20 { // a bubble begins on a whole second, and stores cut times to seconds
		runtest.In(t, func(t *testing.T, w *runtest.World) {
			time.Sleep(time.Duration(i) * 51 * time.Millisecond)
			drains(t, w)
		})
	}
}

func drains(t *testing.T, w *runtest.World) {
	slow := faultstore.Fault{Delay: 2 * time.Second}
	w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: slow}))
	leading := make(chan struct{})
	a := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
		for i := range 20 {
			if err := runtest.AppendAsync(ctx, s, fmt.Sprint(i)); err != nil {
				return err
			}
		}
		close(leading)
		<-ctx.Done()
		if err := context.Cause(ctx); !errors.Is(err, runtest.ErrStop) || !errors.Is(err, leader.ErrResigned) {
			w.Errorf("work was stopped because of %v", err)
		}
		return context.Cause(ctx)
	})
	<-leading
	var began time.Time
	late := runtest.Options("b")
	late.Leader.Poll = -1 // one that looked sooner would seal what is in flight, as it may
	b := w.Start("b", late, func(_ context.Context, s *fencepost.Session) error {
		began = time.Now()
		if s.Recovered().Offset != 20 {
			w.Errorf("the next leader recovered %+v", s.Recovered())
		}
		return nil
	})
	time.Sleep(time.Second)
	a.Cancel(runtest.ErrStop)
	if err := w.Ends(a); err != nil {
		t.Errorf("it was told to end and did, with %v", err)
	}
	ended := time.Now()
	if err := w.Ends(b); err != nil {
		t.Error(err)
	}
	if took := began.Sub(ended); took > 3*time.Second {
		t.Errorf("the next leader began %v after the end of the one before", took)
	}
}

// Run ends in bounded time also if the store answers no append.
func TestRunDrainIsBounded(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}}))
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			if err := runtest.AppendAsync(ctx, s, "a"); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Minute)
		n.Cancel(runtest.ErrStop)
		start := time.Now()
		if err := w.Ends(n); !errors.Is(err, runtest.ErrStop) || time.Since(start) > 16*time.Second {
			t.Errorf("it ended after %v with %v", time.Since(start), err)
		}
		w.Free()
	})
}

// T18, T19: after a leader is deposed, Run ends the work's context, waits for the work,
// contends again, and continues where the history ends.
func TestRunContendsAgain(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		var returned time.Time
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			at := s.Recovered().Offset
			if err := runtest.AppendAsync(ctx, s, fmt.Sprint(at)); err != nil {
				return err
			}
			if err := s.Flush(ctx); err != nil {
				return err
			}
			if at == 3 {
				return nil
			}
			<-ctx.Done()
			if err := context.Cause(ctx); !errors.Is(err, leader.ErrDeposed) {
				w.Errorf("work was stopped because of %v", err)
			}
			time.Sleep(time.Second) // Run has to wait for it
			returned = time.Now()
			return ctx.Err()
		})
		e := w.Elector()
		for i := range int64(3) {
			time.Sleep(time.Minute)
			if n.Calls.Load() != i+1 {
				t.Fatalf("work was called %d times", n.Calls.Load())
			}
			if _, err := e.StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Ends(n); err != nil || n.Calls.Load() != 4 {
			t.Errorf("it ended with %v after %d terms", err, n.Calls.Load())
		}
		if returned.IsZero() || time.Since(returned) < 0 {
			t.Error("work was not waited for")
		}
		w.Holds("0", "1", "2", "3")
		if rec := w.Free(); rec.Epoch != 4 {
			t.Errorf("the last epoch is %v", rec.Epoch)
		}
	})
}

// A lost term cuts the writer off: Run does not wait for appends whose outcome the store
// does not tell.
func TestRunCutsOff(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if _, ok := layout.ParseDataKey(op.Key); ok && op.Kind == faultstore.Put && op.Size > frame.HeaderSize { // not a seal
				return faultstore.Fault{Drop: true, Hang: true}
			}
			return faultstore.Fault{}
		})
		var second time.Time
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			if s.Epoch() > 1 {
				second = time.Now()
				return nil
			}
			f, err := s.AppendAsync(ctx, [][]byte{[]byte("a")})
			if err != nil {
				return err
			}
			_, err = f.Wait(context.Background())
			if !errors.Is(err, writer.ErrUnknown) || !errors.Is(err, leader.ErrDeposed) {
				t.Errorf("the append was told %v", err)
			}
			return err
		})
		time.Sleep(time.Minute)
		if _, err := w.Elector().StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
			t.Fatal(err)
		}
		deposed := time.Now()
		if err := w.Ends(n); err != nil {
			t.Error(err)
		}
		if took := second.Sub(deposed); took < 0 || took > 10*time.Second {
			t.Errorf("it led again %v after it was deposed", took)
		}
		w.Holds()
	})
}

// Work that returns nil after its term was lost is done if all its appends were
// acknowledged before.
func TestRunDoneInTime(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			if _, err := s.Append(ctx, [][]byte{[]byte("a")}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		time.Sleep(time.Minute)
		if _, err := w.Elector().StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
			t.Fatal(err)
		}
		if err := w.Ends(n); err != nil || n.Calls.Load() != 1 {
			t.Errorf("it ended with %v after %d terms", err, n.Calls.Load())
		}
		w.Holds("a")
	})
}

// A leader whose heartbeats hang loses its term by its own clock, before another one
// leads. When its heartbeats work again, it contends again. Each record that it appended
// meanwhile is in the log once or not at all.
func TestRunFrozenHeartbeats(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		var frozen atomic.Bool
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Client == "a" && op.Kind == faultstore.Put && strings.HasPrefix(op.Key, "lock/") && frozen.Load() {
				return faultstore.Fault{Drop: true, Hang: true}
			}
			return faultstore.Fault{}
		})
		var leading atomic.Int64
		do := func(name string) runtest.Work {
			return func(ctx context.Context, s *fencepost.Session) error {
				if others := leading.Add(1); others != 1 {
					w.Errorf("%s leads beside another", name)
				}
				defer leading.Add(-1)
				for i := 0; ctx.Err() == nil; i++ {
					if _, err := s.Append(ctx, [][]byte{fmt.Appendf(nil, "%s.%d.%d", name, s.Epoch(), i)}); err != nil {
						return err
					}
					_ = clock.Sleep(ctx, clock.Go(), time.Second)
				}
				return ctx.Err()
			}
		}
		a := w.Start("a", runtest.Options("a"), do("a"))
		time.Sleep(10 * time.Second)
		b := w.Start("b", runtest.Options("b"), do("b"))
		time.Sleep(10 * time.Second)
		frozen.Store(true)
		time.Sleep(time.Minute)
		if a.Calls.Load() != 1 || b.Calls.Load() != 1 {
			t.Errorf("a led %d times, b %d times", a.Calls.Load(), b.Calls.Load())
		}
		frozen.Store(false)
		b.Cancel(runtest.ErrStop)
		if err := w.Ends(b); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if a.Calls.Load() != 2 {
			t.Errorf("a led %d times", a.Calls.Load())
		}
		a.Cancel(runtest.ErrStop)
		if err := w.Ends(a); err != nil {
			t.Error(err)
		}
		var leaders []string
		seen := map[string]bool{}
		for _, v := range w.Contents() {
			if seen[v] {
				t.Errorf("%q is there twice", v)
			}
			seen[v] = true
			if who := v[:1]; len(leaders) == 0 || leaders[len(leaders)-1] != who {
				leaders = append(leaders, who)
			}
		}
		if !slices.Equal(leaders, []string{"a", "b", "a"}) {
			t.Errorf("the log was written by %q", leaders)
		}
	})
}

// The log may know later epochs than the election, because the locks were lost or tokens
// came from elsewhere. Then the election continues after them, at the cost of one term.
func TestRunAfterLaterEpochs(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		open := func(epoch fence.Epoch, value string) *writer.Writer {
			wr, err := writer.Open(t.Context(), w.Mem, fence.NewToken(epoch), runtest.Options("x").Writer)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := wr.Append(t.Context(), [][]byte{[]byte(value)}); err != nil {
				t.Fatal(err)
			}
			return wr
		}
		if err := open(40, "0").Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		ended, fenced := make(chan time.Duration, 1), make(chan struct{})
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			switch s.Recovered().Offset {
			case 1:
				ended <- time.Since(start)
				if s.Epoch() != 41 {
					w.Errorf("it leads in epoch %d", s.Epoch())
				}
				if _, err := s.Append(ctx, [][]byte{[]byte("1")}); err != nil {
					return err
				}
				<-fenced // a writer with a token from elsewhere has taken over
				_ = runtest.AppendAsync(ctx, s, "never")
				<-ctx.Done()
				return errors.New("stopped, for whatever reason")
			case 3:
				if s.Epoch() != 71 {
					w.Errorf("then it leads in epoch %d", s.Epoch())
				}
				return runtest.AppendAsync(ctx, s, "3")
			}
			return fmt.Errorf("recovered %+v", s.Recovered())
		})
		if took := <-ended; took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Second)
		other := open(70, "2")
		close(fenced)
		if err := w.Ends(n); err != nil {
			t.Error(err)
		}
		_ = other.Close(t.Context())
		w.Holds("0", "1", "2", "3")
		if locks := len(w.Keys("lock/")); locks > 5 {
			t.Errorf("there were %d terms", locks)
		}
	})
}

// A store that fails for a while during the opening does not end Run. The token is spent,
// so the writer is opened in another term.
func TestRunOutlivesFailures(t *testing.T) {
	for _, prefix := range []string{"", "manifest/", "data/", "lock/"} {
		runtest.In(t, func(t *testing.T, w *runtest.World) {
			var down atomic.Bool
			down.Store(true)
			w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
				if strings.HasPrefix(op.Key, prefix) && down.Load() {
					return faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}
				}
				return faultstore.Fault{}
			})
			n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error { return runtest.AppendAsync(ctx, s, "a") })
			time.Sleep(5 * time.Minute)
			down.Store(false)
			if err := w.Ends(n); err != nil || n.Calls.Load() != 1 {
				t.Errorf("%q fails: it ended with %v after %d terms", prefix, err, n.Calls.Load())
			}
			w.Holds("a")
			w.Free()
		})
	}
}

// Work that panics or ends its goroutine leaves no held lock and no goroutine.
func TestRunPanics(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		func() {
			defer func() {
				if r := recover(); r != "oops" {
					t.Errorf("recovered %v", r)
				}
			}()
			_ = fencepost.Run(t.Context(), w.Faulty, runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
				if err := runtest.AppendAsync(ctx, s, "a"); err != nil {
					return err
				}
				panic("oops")
			})
		}()
		w.Free()
	})
}

// Told to end, Run returns nil if it did so cleanly: main exits with 0 after SIGTERM. It is not clean if something that
// was appended is not in the log, whoever has noticed that.
func TestRunToldToEnd(t *testing.T) {
	full := errors.New("the disk is full")
	for name, c := range map[string]struct {
		work  runtest.Work
		clean bool
		alone bool // clean if nobody follows
		says  error
	}{
		"obeys":                      {work: func(ctx context.Context, _ *fencepost.Session) error { <-ctx.Done(); return context.Cause(ctx) }, clean: true},
		"obeys in its own words":     {work: func(ctx context.Context, _ *fencepost.Session) error { <-ctx.Done(); return ctx.Err() }, clean: true},
		"is done":                    {work: func(ctx context.Context, _ *fencepost.Session) error { <-ctx.Done(); return nil }, clean: true},
		"appends until it is sealed": {work: appends, clean: true},
		"fails":                      {work: func(ctx context.Context, _ *fencepost.Session) error { <-ctx.Done(); return full }, says: full},
		"says that it is done, and is not": {work: func(ctx context.Context, s *fencepost.Session) error {
			<-ctx.Done() // if it is followed, the log is sealed
			_, err := s.AppendAsync(context.WithoutCancel(ctx), [][]byte{[]byte("x")})
			return err
		}, alone: true, says: writer.ErrNotCommitted},
	} {
		for _, followed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", followed ", followed), func(t *testing.T) {
				runtest.In(t, func(t *testing.T, w *runtest.World) {
					a := w.Start("a", runtest.Options("a"), c.work)
					time.Sleep(10 * time.Second)
					if followed {
						defer w.Ends(w.Start("b", runtest.Options("b"), func(context.Context, *fencepost.Session) error { return nil }))
						time.Sleep(10 * time.Second)
					}
					a.Cancel(runtest.ErrStop)
					err := w.Ends(a)
					if clean := c.clean || c.alone && !followed; clean && err != nil || !clean && (!errors.Is(err, runtest.ErrStop) || !errors.Is(err, c.says)) {
						t.Errorf("Run returns %v", err)
					}
				})
			})
		}
	}
	t.Run("never led", func(t *testing.T) {
		runtest.In(t, func(t *testing.T, w *runtest.World) {
			hold := make(chan struct{})
			a := w.Start("a", runtest.Options("a"), func(context.Context, *fencepost.Session) error { <-hold; return nil })
			time.Sleep(10 * time.Second)
			b := w.Start("b", runtest.Options("b"), func(context.Context, *fencepost.Session) error { return full })
			time.Sleep(10 * time.Second)
			b.Cancel(runtest.ErrStop)
			if err := w.Ends(b); err != nil {
				t.Errorf("a candidate returns %v", err)
			}
			close(hold)
			if err := w.Ends(a); err != nil {
				t.Error(err)
			}
		})
	})
}

// guard:run-owed. Without this check: leader A appends a record without waiting for it, and the store does not answer; A loses its
// term, its work returns nil, and Run contends again; A gets SIGTERM while B leads; Run returns nil, so A exits with 0 as if all were
// done; the record is not in the log.
// When the work is called again, what it did before does not count any more.
func TestRunOwes(t *testing.T) {
	for _, again := range []bool{false, true} {
		runtest.In(t, func(t *testing.T, w *runtest.World) {
			w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Client: "a", Kind: faultstore.Put, Prefix: "data/" + layout.FormatNumber(1), Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout}}))
			a := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
				if s.Epoch() == 1 {
					_ = runtest.AppendAsync(ctx, s, "x")
				}
				<-ctx.Done()
				return nil
			})
			time.Sleep(10 * time.Second)
			b := w.Start("b", runtest.Options("b"), func(ctx context.Context, _ *fencepost.Session) error { <-ctx.Done(); return ctx.Err() })
			time.Sleep(time.Second)
			if _, err := w.Elector().StepDown(t.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			if a.Calls.Load() != 1 || b.Calls.Load() != 1 {
				t.Errorf("the work of a was called %d times, that of b %d times", a.Calls.Load(), b.Calls.Load())
			}
			if again {
				b.Cancel(runtest.ErrStop)
				time.Sleep(time.Minute)
			}
			a.Cancel(runtest.ErrStop)
			if err := w.Ends(a); again && err != nil || !again && (!errors.Is(err, runtest.ErrStop) || !errors.Is(err, writer.ErrNotCommitted)) {
				t.Errorf("called again %t: Run returns %v", again, err)
			}
			b.Cancel(runtest.ErrStop)
			if err := w.Ends(b); err != nil {
				t.Error(err)
			}
		})
	}
}

// appends appends as often as the store answers, until an append is refused.
func appends(ctx context.Context, s *fencepost.Session) error {
	for {
		if _, err := s.Append(context.WithoutCancel(ctx), [][]byte{[]byte("x")}); err != nil {
			return err
		}
		if err := clock.Sleep(ctx, clock.Go(), 100*time.Millisecond); err != nil {
			return err
		}
	}
}
