package runtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/layout"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/runtest"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/writer"
)

// acks notes when appends were acknowledged.
type acks struct {
	sync.Mutex
	first, last map[uint64]time.Time // by epoch
	began       chan uint64
	measured    atomic.Bool // append often now
}

func (a *acks) note(epoch fence.Epoch) {
	a.Lock()
	defer a.Unlock()
	if _, ok := a.first[uint64(epoch)]; !ok {
		a.first[uint64(epoch)] = time.Now()
		a.began <- uint64(epoch)
	}
	a.last[uint64(epoch)] = time.Now()
}

// appendAll appends until its context ends or an append fails.
func (a *acks) appendAll(ctx context.Context, s *fencepost.Session) error {
	if err := a.appendWhile(ctx, s, func() bool { return ctx.Err() == nil }); err != nil {
		return err
	}
	return context.Cause(ctx)
}

func (a *acks) appendWhile(ctx context.Context, s *fencepost.Session, goesOn func() bool) error {
	for i := 0; goesOn(); i++ {
		_, err := s.Append(ctx, [][]byte{fmt.Appendf(nil, "%d.%d", s.Epoch(), i)})
		if err != nil {
			return err
		}
		a.note(s.Epoch())
		pause := time.Second
		if a.measured.Load() {
			pause = 10 * time.Millisecond
		}
		_ = clock.Sleep(ctx, clock.Go(), pause)
	}
	return nil
}

// At any moment the leader of three is told to end, resigns, is deposed by an operator, or its
// work is done. Nearly no time passes between its last acknowledgement and the first of its
// successor, and its process ends as soon as another leads. Requests take 0 to 40 ms.
func TestRunHandsOver(t *testing.T) {
	rounds := test.Of(8, 100)
	var done atomic.Uint64 // the epoch whose work is to return nil
	hows := map[string]func(w *runtest.World, n *runtest.Node, s *fencepost.Session){
		"told to end":              func(_ *runtest.World, n *runtest.Node, _ *fencepost.Session) { n.Cancel(runtest.ErrStop) },
		"resigns":                  func(_ *runtest.World, _ *runtest.Node, s *fencepost.Session) { s.Resign() },
		"returns nil":              func(_ *runtest.World, _ *runtest.Node, s *fencepost.Session) { done.Store(uint64(s.Epoch())) },
		"looks often, returns nil": func(_ *runtest.World, _ *runtest.Node, s *fencepost.Session) { done.Store(uint64(s.Epoch())) },
		"resigns and returns nil": func(_ *runtest.World, _ *runtest.Node, s *fencepost.Session) {
			s.Resign()
			done.Store(uint64(s.Epoch()))
		},
		"deposed": func(w *runtest.World, _ *runtest.Node, _ *fencepost.Session) {
			if _, err := w.Elector().StepDown(context.Background(), nil); err != nil {
				w.Error(err)
			}
		},
	}
	for name, how := range hows {
		t.Run(name, func(t *testing.T) {
			runtest.In(t, func(t *testing.T, w *runtest.World) {
				w.Faulty.SetRates(faultstore.Rates{MaxDelay: 40 * time.Millisecond})
				rng := rand.New(rand.NewPCG(1, 1))
				a := &acks{first: map[uint64]time.Time{}, last: map[uint64]time.Time{}, began: make(chan uint64, 1)}
				var mu sync.Mutex
				var leads *runtest.Node
				var session *fencepost.Session
				all := map[*runtest.Node]bool{}
				start := func(i int) {
					ready := make(chan struct{})
					var n *runtest.Node
					o := runtest.Options(fmt.Sprint("n", i))
					if name == "looks often, returns nil" {
						o.Leader.Poll = 150 * time.Millisecond
					}
					n = w.Start(o.Leader.Identity, o, func(ctx context.Context, s *fencepost.Session) error {
						<-ready
						mu.Lock()
						leads, session = n, s
						mu.Unlock()
						switch name {
						case "returns nil", "looks often, returns nil":
						case "resigns and returns nil":
							return a.appendWhile(ctx, s, func() bool { return done.Load() < uint64(s.Epoch()) || s.Check(0) == nil })
						default:
							return a.appendAll(ctx, s)
						}
						ctx, cancel := context.WithCancel(ctx)
						go func() {
							for clock.Sleep(ctx, clock.Go(), 5*time.Millisecond) == nil {
								if done.Load() == uint64(s.Epoch()) {
									cancel()
								}
							}
						}()
						_ = a.appendAll(ctx, s)
						return nil
					})
					close(ready)
					all[n] = true
				}
				for i := range 3 {
					start(i)
				}
				now := <-a.began
				var gap, process []time.Duration
				for i := range rounds {
					time.Sleep(8*time.Second + time.Duration(rng.Int64N(int64(6*time.Second))))
					a.measured.Store(true)
					time.Sleep(1200 * time.Millisecond) // until it appends often
					mu.Lock()
					n, s := leads, session
					mu.Unlock()
					how(w, n, s)
					next := <-a.began
					var ended time.Time
					if name == "told to end" || strings.HasSuffix(name, "returns nil") {
						if err := w.Ends(n); err != nil && !errors.Is(err, runtest.ErrStop) {
							t.Errorf("Run returned %v", err)
						}
						ended = time.Now()
						delete(all, n)
						start(i + 3)
					}
					time.Sleep(time.Second)
					a.measured.Store(false)
					a.Lock()
					gap = append(gap, a.first[next].Sub(a.last[now]))
					process = append(process, ended.Sub(a.first[next]))
					a.Unlock()
					now = next
				}
				most := 300 * time.Millisecond
				if name == "returns nil" {
					most = 400 * time.Millisecond // the next leader learns of it at its next read, and opens the log only then
				}
				if !test.Whole() {
					most += 100 * time.Millisecond // of 20 rounds the median is less certain
				}
				distribution(t, "from the last acknowledgement to the first of the next", gap, most, time.Second)
				if name == "told to end" {
					distribution(t, "from then to the end of the process before", process, 300*time.Millisecond, time.Second)
				}
				for n := range all {
					n.Cancel(runtest.ErrStop)
				}
				for n := range all {
					_ = w.Ends(n)
				}
				w.Contents() // it can be read to the end
			})
		})
	}
}

func distribution(t *testing.T, what string, d []time.Duration, p50, p99 time.Duration) {
	t.Helper()
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[min(int(q*float64(len(d))), len(d)-1)] }
	t.Logf("%s, %d times: p50 %v, p99 %v, max %v", what, len(d), at(0.5), at(0.99), d[len(d)-1])
	if at(0.5) > p50 || at(0.99) > p99 {
		t.Errorf("%s: p50 %v and p99 %v, want %v and %v", what, at(0.5), at(0.99), p50, p99)
	}
}

// A process is killed and started again with its name. If its dead predecessor can only be
// itself, it leads at once, and the work goes on where the log ends. A twin that lives is
// fenced, waits, and does not take the log back.
func TestRunReclaims(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		opts := func() *fencepost.Options {
			o := runtest.Options("a")
			o.Leader.Reclaim = true
			return o
		}
		a := &acks{first: map[uint64]time.Time{}, last: map[uint64]time.Time{}, began: make(chan uint64, 1)}
		first := w.Start("a1", opts(), a.appendAll)
		<-a.began
		time.Sleep(time.Minute + 3*time.Second) // between two heartbeats
		first.Store.Crash()                     // the process is dead: none of its requests gets through
		start := time.Now()
		second := w.Start("a2", opts(), a.appendAll)
		if <-a.began; time.Since(start) > 2*time.Second {
			t.Errorf("it appended after %v", time.Since(start))
		}
		// Between two heartbeats: one at the same moment as the twin's swap may refuse the swap,
		// and then the twin knows that the holder lives.
		time.Sleep(time.Minute + 3*time.Second)
		twin := w.Start("a3", opts(), a.appendAll)
		if epoch := <-a.began; epoch != 3 {
			t.Errorf("epoch %d", epoch)
		}
		time.Sleep(time.Hour)
		if second.Calls.Load() != 1 || twin.Calls.Load() != 1 {
			t.Errorf("the two led %d and %d times", second.Calls.Load(), twin.Calls.Load())
		}
		for _, n := range []*runtest.Node{first, second, twin} {
			n.Cancel(runtest.ErrStop)
		}
		for _, n := range []*runtest.Node{first, second, twin} {
			_ = w.Ends(n)
		}
		w.Contents()
	})
}

// A leader whose work is done frees its lock as soon as all is in the history, and not only when
// the writer is closed: here the request that notes the tail in the manifest hangs.
func TestRunFreesTheLockFirst(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		var done, led time.Time
		a := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			time.Sleep(20 * time.Second)
			if err := runtest.AppendAsync(ctx, s, "a"); err != nil {
				return err
			}
			done = time.Now()
			return nil
		})
		time.Sleep(10 * time.Second)
		b := w.Start("b", runtest.Options("b"), func(context.Context, *fencepost.Session) error {
			led = time.Now()
			return nil
		})
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			hangs := op.Client == "a" && op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.ManifestPrefix)
			return faultstore.Fault{Drop: hangs, Hang: hangs}
		})
		for _, n := range []*runtest.Node{b, a} {
			if err := w.Ends(n); err != nil {
				t.Error(err)
			}
		}
		if gap := led.Sub(done); gap > time.Second {
			t.Errorf("the next leader began after %v", gap)
		}
		w.Holds("a")
	})
}

// A goroutine outlives the work, and appends while Run still waits for the outcome of what the work appended. That
// append is refused, as after Close: the lock is freed next, and the next leader's seal would stop it. So the work is
// done, and Run does not contend again.
func TestRunWorkLeavesAGoroutine(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		late := make(chan error, 8)
		led := make(chan struct{})
		var puts atomic.Int64
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			switch {
			case op.Client != "a" || op.Kind != faultstore.Put || !strings.HasPrefix(op.Key, layout.DataPrefix):
				return faultstore.Fault{}
			}
			switch puts.Add(1) {
			case 1: // the seal of its opening
				return faultstore.Fault{}
			case 2:
				return faultstore.Fault{Delay: time.Second}
			}
			return faultstore.Fault{Hold: led}
		})
		o := runtest.Options("a")
		o.Writer.Hedge = -1
		a := w.Start("a", o, func(ctx context.Context, s *fencepost.Session) error {
			time.Sleep(20 * time.Second)
			if err := runtest.AppendAsync(ctx, s, "a"); err != nil {
				return err
			}
			go func() {
				time.Sleep(500 * time.Millisecond)
				_, err := s.Append(context.Background(), [][]byte{[]byte("late")})
				late <- err
			}()
			return nil
		})
		time.Sleep(10 * time.Second)
		b := w.Start("b", runtest.Options("b"), func(context.Context, *fencepost.Session) error {
			close(led)
			return nil
		})
		for _, n := range []*runtest.Node{b, a} {
			if err := w.Ends(n); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute) // until all goroutines of the work have ended
		if err := <-late; !errors.Is(err, writer.ErrNotCommitted) || !errors.Is(err, writer.ErrClosed) {
			t.Errorf("the late append: %v", err)
		}
		if n := a.Calls.Load(); n != 1 {
			t.Errorf("the work was called %d times", n)
		}
		w.Holds("a")
	})
}

// Alone it ends at once, and everything that it appended is in the log.
func TestRunAloneEndsAtOnce(t *testing.T) {
	for _, why := range []error{
		runtest.ErrStop,
		&leader.TermError{Epoch: 7, Kind: leader.ErrDeposed}, // it runs as the work of another election
	} {
		runtest.In(t, func(t *testing.T, w *runtest.World) { aloneEndsAtOnce(t, w, why) })
	}
}

func aloneEndsAtOnce(t *testing.T, w *runtest.World, why error) {
	n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
		if err := runtest.AppendAsync(ctx, s, "a"); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	time.Sleep(time.Minute)
	start := time.Now()
	n.Cancel(why)
	if err := w.Ends(n); err != nil || time.Since(start) > time.Second {
		t.Errorf("told to end by %q, it ended after %v with %v", why, time.Since(start), err)
	}
	w.Holds("a")
	w.Free()
}

// A leader is deposed, and nobody follows. What its work has appended when it returns is settled, so the work
// is done, and is not called again.
func TestRunDeposedSettles(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		w.Faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Kind == faultstore.Put && strings.HasPrefix(op.Key, layout.DataPrefix) {
				return faultstore.Fault{Delay: time.Second}
			}
			return faultstore.Fault{}
		})
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			for s.Check(0) == nil {
				time.Sleep(10 * time.Millisecond)
			}
			return runtest.AppendAsync(context.WithoutCancel(ctx), s, "a")
		})
		time.Sleep(20 * time.Second)
		if _, err := w.Elector().StepDown(t.Context(), nil); err != nil {
			t.Error(err)
		}
		if err := w.Ends(n); err != nil {
			t.Error(err)
		}
		if calls := n.Calls.Load(); calls != 1 {
			t.Errorf("the work was called %d times", calls)
		}
		w.Holds("a")
	})
}

// A process is told to end, its work obeys, and what it had appended fails. Run says that.
func TestRunTellsWhatClosingFinds(t *testing.T) {
	for _, closes := range []bool{false, true} { // the work, itself, with the context that has ended
		runtest.In(t, func(t *testing.T, w *runtest.World) { closingFinds(t, w, closes) })
	}
}

func closingFinds(t *testing.T, w *runtest.World, closes bool) {
	n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
		<-ctx.Done()
		w.Faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Prefix: layout.DataPrefix, Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied}}))
		if err := runtest.AppendAsync(context.WithoutCancel(ctx), s, "a"); err != nil {
			t.Error(err)
		}
		if closes {
			_ = s.Close(ctx)
		}
		return context.Cause(ctx)
	})
	time.Sleep(10 * time.Second)
	n.Cancel(runtest.ErrStop)
	if err := w.Ends(n); !errors.Is(err, runtest.ErrStop) || !errors.Is(err, writer.ErrNotCommitted) && !errors.Is(err, writer.ErrUnknown) {
		t.Errorf("the work closes %v: Run: %v", closes, err)
	}
}

// A process is told to end, and its work fails before it has ended. Run says both. Work that obeys is no failure.
func TestRunTellsTheWorksError(t *testing.T) {
	full := errors.New("disk full")
	for _, follows := range []bool{false, true} {
		for _, own := range []error{full, nil} {
			runtest.In(t, func(t *testing.T, w *runtest.World) {
				n := w.Start("a", runtest.Options("a"), func(ctx context.Context, _ *fencepost.Session) error {
					<-ctx.Done()
					if own != nil {
						return own
					}
					return fmt.Errorf("reading: %w", context.Cause(ctx))
				})
				time.Sleep(10 * time.Second)
				b := w.Start("b", runtest.Options("b"), func(ctx context.Context, _ *fencepost.Session) error {
					<-ctx.Done()
					return context.Cause(ctx)
				})
				if !follows {
					b.Store.Crash()
				}
				time.Sleep(20 * time.Second)
				n.Cancel(runtest.ErrStop)
				if err := w.Ends(n); (err != nil) != (own != nil) || own != nil && (!errors.Is(err, runtest.ErrStop) || !errors.Is(err, full)) {
					t.Errorf("follows %v, work %v: Run: %v", follows, own, err)
				}
				b.Cancel(runtest.ErrStop)
				_ = w.Ends(b)
			})
		}
	}
}

// The leader whose successor does not come ends after Drain and a moment, and its lock is
// free.
func TestRunHandOverIsBounded(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		n := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
			<-ctx.Done()
			if err := s.Check(0); !errors.Is(err, leader.ErrResigned) {
				t.Errorf("Check says %v", err)
			}
			return context.Cause(ctx)
		})
		time.Sleep(10 * time.Second)
		b := w.Start("b", runtest.Options("b"), func(context.Context, *fencepost.Session) error { return nil })
		time.Sleep(30 * time.Second)
		b.Store.Crash()
		start := time.Now()
		n.Cancel(runtest.ErrStop)
		if err := w.Ends(n); err != nil || time.Since(start) < 7*time.Second || time.Since(start) > 12*time.Second {
			t.Errorf("it ended after %v with %v", time.Since(start), err)
		}
		w.Free()
		b.Cancel(runtest.ErrStop)
		_ = w.Ends(b)
	})
}

// A leader that is told to end has said by Check that its term lasts for
// five seconds more. A follower is close at once, and leads after these five seconds.
//
// guard:check-kept. Without this wait: A's work gets nil from Check(5s), and begins an effect that takes 4 s; A is told to
// end, and its lock is released at once; candidate B leads, gets nil from Check(5s), and does the same effect beside A.
func TestRunKeepsWhatCheckHasPromised(t *testing.T) {
	for need, promise := range map[time.Duration]time.Duration{
		5 * time.Second:  5 * time.Second,
		14 * time.Second: 0, // no term lasts so long
	} {
		runtest.In(t, func(t *testing.T, w *runtest.World) { keepsPromise(t, w, need, promise) })
	}
}

func keepsPromise(t *testing.T, w *runtest.World, need, promise time.Duration) {
	var promised, led time.Time
	a := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
		time.Sleep(20 * time.Second)
		if err := s.Check(need); (err == nil) != (promise > 0) {
			t.Error(err)
		}
		promised = time.Now().Add(promise)
		s.Resign()
		time.Sleep(8 * time.Second) // it ignores its context
		return context.Cause(ctx)
	})
	time.Sleep(10 * time.Second)
	b := w.Start("b", runtest.Options("b"), func(context.Context, *fencepost.Session) error {
		led = time.Now()
		return nil
	})
	if err := w.Ends(b); err != nil {
		t.Error(err)
	}
	a.Cancel(runtest.ErrStop)
	_ = w.Ends(a)
	if late := led.Sub(promised); late < 0 || late > 3*time.Second {
		t.Errorf("the next leader began %v after what was promised", late)
	}
}

// A store that hangs does not keep a process that is told to end beyond the 30 s that
// Kubernetes gives it, also with an append in flight.
func TestRunEndsOnAHungStore(t *testing.T) {
	for i := range 14 {
		runtest.In(t, func(t *testing.T, w *runtest.World) {
			a := w.Start("a", runtest.Options("a"), func(ctx context.Context, s *fencepost.Session) error {
				<-ctx.Done()
				_ = runtest.AppendAsync(context.WithoutCancel(ctx), s, "a")
				return context.Cause(ctx)
			})
			time.Sleep(10 * time.Second)
			b := w.Start("b", runtest.Options("b"), func(context.Context, *fencepost.Session) error { return nil })
			if i%2 == 0 {
				b.Store.Crash()
			}
			time.Sleep(50*time.Second + time.Duration(i)*time.Second/2)
			w.Faulty.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} })
			start := time.Now()
			a.Cancel(runtest.ErrStop)
			if err := w.Ends(a); err == nil || time.Since(start) > 27*time.Second {
				t.Errorf("%d: it ended after %v with %v", i, time.Since(start), err)
			}
			b.Cancel(runtest.ErrStop)
			_ = w.Ends(b)
		})
	}
}

// A hook that ends its goroutine, as t.FailNow does, ends Run and not only the election.
func TestRunHookEndsItsGoroutine(t *testing.T) {
	runtest.In(t, func(t *testing.T, w *runtest.World) {
		o := runtest.Options("a")
		o.Leader.Hooks.Elected = func(leader.Election) { runtime.Goexit() }
		n := w.Start("a", o, func(context.Context, *fencepost.Session) error { return nil })
		if err := w.Ends(n); err == nil || !strings.Contains(err.Error(), "hook") {
			t.Errorf("it ended with %v", err)
		}
		w.Free()
	})
}
