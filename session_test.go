package fencepost_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// The work knows what there is to know of its term, while it lasts and after that.
func TestSessionKnowsItsTerm(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			if err := errors.Join(s.Confirm(ctx), s.Check(10*time.Second)); err != nil || s.Remaining() < 10*time.Second {
				t.Errorf("the term does not stand: %v, %v remaining", err, s.Remaining())
			}
			if !errors.Is(s.Check(time.Hour), leader.ErrShort) {
				t.Error("a term of 15 s lasts for an hour")
			}
			if uint64(s.Epoch()) != 1 || s.Token().Epoch() != s.Epoch() {
				t.Errorf("epoch %d, token %v", s.Epoch(), s.Token())
			}
			if _, err := w.Elector().StepDown(ctx, &leader.StepDownOptions{Immediate: true}); err != nil {
				return err
			}
			<-ctx.Done()
			for _, err := range []error{s.Check(0), s.Confirm(context.Background()), context.Cause(ctx)} {
				if !errors.Is(err, leader.ErrDeposed) {
					t.Errorf("of a lost term it is said %v", err)
				}
			}
			if s.Remaining() != 0 {
				t.Errorf("%v remain of a lost term", s.Remaining())
			}
			return nil
		})
		if err := w.Ends(n); err != nil {
			t.Error(err)
		}
	})
}

// StallAfter ends the term of work that hangs, and of no other: not of work that calls
// Progress, nor while Run opens or closes the writer on a slow store.
func TestSessionProgress(t *testing.T) {
	for name, c := range map[string]struct {
		call  bool
		terms int64
	}{"work that calls Progress": {true, 1}, "work that hangs": {false, 2}} {
		t.Run(name, func(t *testing.T) {
			runtest.In(t, func(t *testing.T, w *runtest.World) {
				w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
					if op.Key == "format.json" || len(op.Key) > 5 && op.Key[:5] == "data/" {
						return faultstore.Fault{Delay: 4 * time.Second}
					}
					return faultstore.Fault{}
				})
				o := runtest.Options("a")
				o.Leader.StallAfter = 3 * time.Second
				n := w.Start("a", o, func(ctx context.Context, s *fencepost.Session) error {
					first := s.Epoch() == 1
					for range 60 {
						if c.call {
							s.Progress()
						}
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
							if !first || c.call || !errors.Is(context.Cause(ctx), leader.ErrStalled) {
								t.Errorf("epoch %d was stopped because of %v", s.Epoch(), context.Cause(ctx))
							}
							return context.Cause(ctx)
						}
						if !first {
							break
						}
					}
					return runtest.AppendAsync(ctx, s, fmt.Sprint(s.Epoch()))
				})
				if err := w.Ends(n); err != nil || n.Calls.Load() != c.terms {
					t.Errorf("it ended with %v after %d terms", err, n.Calls.Load())
				}
				w.Holds(fmt.Sprint(c.terms))
			})
		})
	}
}

// Work that resigns goes on for Drain, what it appends meanwhile is in the log, and
// then another process leads within a moment. The one that resigned leads again when
// the other is done.
func TestSessionResign(t *testing.T) {
	for range 10 { // with names and jitter by chance
		runtest.In(t, resignAndLeadAgain)
	}
}

func resignAndLeadAgain(t *testing.T, w *runtest.World) {
	var resigned, stopped, began time.Time
	waiting := make(chan struct{})
	a := w.Start("a", runtest.Options(""), func(ctx context.Context, s *fencepost.Session) error {
		if s.Epoch() > 1 {
			return runtest.AppendAsync(ctx, s, "a again")
		}
		<-waiting
		s.Resign()
		s.Resign() // it has been said
		resigned = time.Now()
		if err := errors.Join(ctx.Err(), s.Check(0), runtest.AppendAsync(ctx, s, "a")); err != nil {
			t.Errorf("right after Resign: %v", err)
		}
		<-ctx.Done()
		stopped = time.Now()
		if err := context.Cause(ctx); !errors.Is(err, leader.ErrResigned) {
			t.Errorf("the work was stopped because of %v", err)
		}
		return context.Cause(ctx)
	})
	time.Sleep(time.Minute)
	b := w.Start("b", runtest.Options(""), func(ctx context.Context, s *fencepost.Session) error {
		began = time.Now()
		time.Sleep(time.Minute)
		return runtest.AppendAsync(ctx, s, "b")
	})
	time.Sleep(time.Minute)
	close(waiting)
	if err := errors.Join(w.Ends(b), w.Ends(a)); err != nil {
		t.Error(err)
	}
	if took := stopped.Sub(resigned); took > 8*time.Second {
		t.Errorf("the work went on for %v", took)
	}
	if took := began.Sub(stopped).Abs(); took > time.Second {
		t.Errorf("the next leader began %v after the end of the one before", took)
	}
	w.Holds("a", "b", "a again")
}

// What the work returns after Resign says whether Run goes on.
func TestSessionResignReturns(t *testing.T) {
	mine := errors.New("my own")
	for name, c := range map[string]struct {
		returns func(ctx context.Context) error
		want    error
		again   bool
	}{
		"nil":                          {func(context.Context) error { return nil }, nil, false},
		"nil, when it must":            {func(ctx context.Context) error { <-ctx.Done(); return nil }, nil, false},
		"ErrResigned":                  {func(context.Context) error { return leader.ErrResigned }, nil, true},
		"the cause":                    {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, nil, true},
		"the context's error":          {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil, true},
		"an error of its own":          {func(context.Context) error { return mine }, mine, false},
		"its own error, when it must":  {func(ctx context.Context) error { <-ctx.Done(); return mine }, mine, false},
		"its own error with the cause": {func(ctx context.Context) error { <-ctx.Done(); return errors.Join(context.Cause(ctx), mine) }, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			runtest.In(t, func(t *testing.T, w *runtest.World) {
				var resigned, second time.Time
				var by string
				do := func(name string) runtest.Work {
					return func(ctx context.Context, s *fencepost.Session) error {
						if s.Epoch() > 1 {
							if second.IsZero() {
								second, by = time.Now(), name
							}
							return nil
						}
						if name != "a" {
							t.Errorf("%s leads first", name)
						}
						time.Sleep(time.Minute)
						resigned = time.Now()
						go s.Resign() // from any goroutine
						s.Resign()
						return errors.Join(runtest.AppendAsync(ctx, s, "a"), c.returns(ctx))
					}
				}
				a := w.Start("a", runtest.Options("a"), do("a"))
				time.Sleep(10 * time.Second)
				b := w.Start("b", runtest.Options("b"), do("b"))
				if err := w.Ends(a); !errors.Is(err, c.want) || (c.want == nil) != (err == nil) {
					t.Errorf("Run returned %v, want %v", err, c.want)
				}
				if again := a.Calls.Load() > 1; again != c.again {
					t.Errorf("the work was called %d times", a.Calls.Load())
				}
				if err := w.Ends(b); err != nil {
					t.Error(err)
				}
				if took := second.Sub(resigned); by != "b" || took > 8*time.Second {
					t.Errorf("%s led %v after Resign", by, took)
				}
				w.Holds("a")
			})
		})
	}
}

// Alone, it leads again after a heartbeat interval in which nobody else came. A call
// from a goroutine that has outlived its work is nothing to the next term.
func TestSessionResignAlone(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		var resigned time.Time
		var old *fencepost.Session
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			switch s.Epoch() {
			case 1:
				old = s
				return leader.ErrResigned // without Resign: it just ends its term
			case 2:
				old.Resign()
				time.Sleep(time.Minute)
				if err := s.Check(0); err != nil {
					t.Error(err)
				}
				resigned = time.Now()
				s.Resign()
				return leader.ErrResigned
			}
			old.Resign()
			if took := time.Since(resigned); took < 6*time.Second || took > 8*time.Second {
				t.Errorf("it leads again after %v", took)
			}
			return nil
		})
		if err := w.Ends(n); err != nil || n.Calls.Load() != 3 {
			t.Errorf("it ended with %v after %d terms", err, n.Calls.Load())
		}
	})
}

// Resign at about the time when the term is lost, or the process is told to stop, or
// the store fails: nothing hangs, nothing panics, and the log is whole.
func TestSessionResignRaces(t *testing.T) {
	for seed := range uint64(40) {
		runtest.In(t, func(t *testing.T, w *runtest.World) {
			rng := rand.New(rand.NewPCG(seed, 1))
			o := runtest.Options("a")
			o.Leader.StallAfter = time.Duration(rng.IntN(2)) * 10 * time.Second
			o.Leader.Drain = []time.Duration{-1, 0, time.Second, time.Minute}[rng.IntN(4)]
			var mu sync.Mutex
			var now *fencepost.Session
			o.Leader.Hooks.Ended = func(leader.End) { // also while Resign runs
				mu.Lock()
				defer mu.Unlock()
				now.Resign()
			}
			if rng.IntN(2) == 0 {
				w.Faulty.SetRates(faultstore.Rates{MaxDelay: 40 * time.Millisecond, LoseReply: 0.05, Late: 0.02, Fail: 0.05})
			}
			at := func() time.Duration { return 9*time.Second + time.Duration(rng.IntN(2000))*time.Millisecond }
			resign, other, end, threat, waits, immediate := at(), at(), at(), rng.IntN(3), rng.IntN(2) == 0, rng.IntN(2) == 0
			n := w.Start("a", o, func(ctx context.Context, s *fencepost.Session) error {
				mu.Lock()
				now = s
				mu.Unlock()
				if s.Recovered().Offset > 0 {
					return nil
				}
				if _, err := s.Append(ctx, [][]byte{[]byte("a")}); err != nil {
					return err
				}
				time.AfterFunc(resign, s.Resign)
				time.AfterFunc(resign, s.Resign)
				if time.Sleep(end); waits {
					<-ctx.Done()
				}
				return leader.ErrResigned
			})
			time.Sleep(other)
			switch threat {
			case 0:
				_, _ = w.Elector().StepDown(t.Context(), &leader.StepDownOptions{Immediate: immediate})
			case 1:
				n.Cancel(runtest.ErrStop)
			}
			if err := w.Ends(n); err != nil && !errors.Is(err, runtest.ErrStop) {
				t.Errorf("seed %d: it ended with %v", seed, err)
			}
			w.Faulty.SetRates(faultstore.Rates{})
			w.Faulty.Release(context.Background(), nil)
			if got := w.Contents(); len(got) > 1 {
				t.Errorf("seed %d: the log holds %q", seed, got)
			}
		})
	}
}

// The compactor prunes old locks: its options say how many to keep, and its credentials
// may delete them. A leader prunes them only if its own options say how many to keep.
func TestRunLeavesOldLocks(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		run := func(lo *leader.Options, work time.Duration) (locks int) {
			t.Helper()
			lo.Clock = clock.Go()
			err := fencepost.Run(t.Context(), w.Mem, &fencepost.Options{Leader: lo, Writer: &writer.Options{Clock: clock.Go()}}, func(ctx context.Context, _ *fencepost.Session) error {
				return clock.Sleep(ctx, clock.Go(), work)
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, err := range w.Mem.List(t.Context(), fencepost.LockPrefix, nil) {
				if err != nil {
					t.Fatal(err)
				}
				locks++
			}
			return locks
		}
		run(&leader.Options{}, 0)
		run(&leader.Options{}, 0)
		time.Sleep(100 * 24 * time.Hour) // longer than a leader's default
		if n := run(&leader.Options{}, time.Minute); n != 3 {
			t.Errorf("%d locks are left of 3", n)
		}
		if n := run(&leader.Options{Prune: leader.PruneOptions{Keep: 2}}, time.Minute); n != 2 {
			t.Errorf("%d locks are left; 2 were to be kept", n)
		}
		if n := run(&leader.Options{NoPrune: true, Prune: leader.PruneOptions{Keep: 1}}, time.Minute); n != 3 {
			t.Errorf("%d locks are left; none was to be deleted", n)
		}
	})
}
