package leader_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store/document"
	"github.com/fencepost/fencepost/store/faultstore"
)

// gaps checks the distribution of hand-overs.
func gaps(t *testing.T, what string, d []time.Duration, p50, p99 time.Duration) {
	t.Helper()
	slices.Sort(d)
	at := func(q float64) time.Duration { return d[min(int(q*float64(len(d))), len(d)-1)] }
	t.Logf("%s, %d times: p50 %v, p99 %v, max %v", what, len(d), at(0.5), at(0.99), d[len(d)-1])
	if at(0.5) > p50 || at(0.99) > p99 {
		t.Errorf("%s: p50 %v and p99 %v, want %v and %v", what, at(0.5), at(0.99), p50, p99)
	}
}

// A leader that is told to end, at any moment, leads on until a candidate is close. Then it
// ends, and the candidate leads within moments. Three processes, one of which is replaced
// each time, as in a rolling deploy.
func TestHandOver(t *testing.T) {
	rounds := test.Of(50, 200)
	for _, how := range []string{"the context ends", "resign"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				rng := rand.New(rand.NewPCG(1, 1))
				type term struct {
					began       time.Time
					stop        func()
					told, ended chan time.Time
				}
				terms := make(chan *term, 1)
				var wg sync.WaitGroup
				all, end := context.WithCancel(w.Context())
				start := func(name string) {
					n := w.node(name)
					wg.Go(func() {
						ctx, cancel := context.WithCancel(all)
						defer cancel()
						x := &term{told: make(chan time.Time, 1), ended: make(chan time.Time, 1)}
						_ = n.Run(ctx, func(work context.Context, lt *leader.Term) error {
							x.began = time.Now()
							x.stop = cancel
							if how == "resign" {
								x.stop = func() { go func() { _ = lt.Resign(context.Background()) }() }
							}
							terms <- x
							<-work.Done()
							x.told <- time.Now()
							return nil
						})
						x.ended <- time.Now()
					})
				}
				start("a")
				now := <-terms
				start("b")
				start("c")
				var gap, process []time.Duration
				for i := range rounds {
					time.Sleep(20*time.Second + time.Duration(rng.Int64N(int64(20*time.Second))))
					now.stop()
					next := <-terms
					gap = append(gap, next.began.Sub(<-now.told))
					process = append(process, (<-now.ended).Sub(next.began))
					start(fmt.Sprint("n", i))
					now = next
				}
				gaps(w.T, "the end of one leader to the next", gap, 300*time.Millisecond, time.Second)
				gaps(w.T, "the next leader to the end of the process before", process, 300*time.Millisecond, time.Second)
				end()
				wg.Wait()
			})
		})
	}
}

// With nobody to hand over to, the work's context ends at once: also if somebody followed
// an earlier term, and if what was noted of it is junk.
func TestHandOverAlone(t *testing.T) {
	for name, note := range map[string]string{"no note": "", "junk": "{", "another epoch": string(document.Sum("candidate.json", []byte(`{"format":1,"epoch":7,"state":"held","candidate":"b"}`)))} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				if note != "" {
					if _, err := w.mem.Put(w.Context(), "lock/candidate.json", []byte(note), nil); err != nil {
						w.Fatal(err)
					}
				}
				ctx, cancel := context.WithCancel(w.Context())
				var told time.Duration
				err := w.node("a").Run(ctx, func(ctx context.Context, _ *leader.Term) error {
					time.Sleep(time.Minute)
					cancel()
					start := time.Now()
					<-ctx.Done()
					told = time.Since(start)
					return context.Cause(ctx)
				})
				if err != nil || told > 200*time.Millisecond {
					w.Errorf("Run returned %v; the work's context ended after %v", err, told)
				}
			})
		})
	}
}

// A candidate has died, or the store does not tell of it. The leader ends all the same,
// after Drain.
func TestHandOverIsBounded(t *testing.T) {
	for _, how := range []string{"the candidate is dead", "the note cannot be read"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				b := w.node("b")
				ctx, cancel := context.WithCancel(w.Context())
				bctx, bcancel := context.WithCancel(w.Context())
				defer bcancel()
				err := w.node("a").Run(ctx, func(ctx context.Context, lt *leader.Term) error {
					go func() { _, _ = b.Campaign(bctx) }()
					time.Sleep(time.Minute)
					b.st.Crash()
					if how != "the candidate is dead" {
						w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Get, Prefix: "lock/candidate", Times: -1,
							Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}}))
					}
					start := time.Now()
					cancel()
					time.Sleep(time.Second)
					if err := lt.Check(0); err != nil {
						w.Errorf("while it drains: %v", err)
					}
					<-ctx.Done()
					if took := time.Since(start); took < 7*time.Second || took > 11*time.Second {
						w.Errorf("the work went on for %v", took)
					}
					var over *leader.TermError
					if !errors.As(context.Cause(ctx), &over) || over.Successor != "" {
						w.Errorf("the term ended with %+v", over)
					}
					return context.Cause(ctx)
				})
				if err != nil {
					w.Error(err)
				}
			})
		})
	}
}

// A process that was killed and started again with its identity leads at once, if whoever
// starts it has promised that the one before is dead. If two live ones have one name, the
// later one wins, once.
//
// guard:reclaim-first. An elector with the option Reclaim deposes a lock of its own name because the
// holder should be its dead predecessor. Without this check: two live processes, P and Q, are both
// called B by mistake; P leads; Q starts, and deposes P; P campaigns again, reads a lock of the name B,
// and deposes Q; Q does the same; neither leads for long.
func TestReclaim(t *testing.T) {
	reclaim := func(o *leader.Options) { o.Reclaim = true }
	inWorld(t, func(w *world) {
		a := w.node("a", reclaim)
		ta := w.campaign(a)
		time.Sleep(time.Minute)
		a.st.Crash()
		began := time.Now()
		again := w.node("a", reclaim)
		tb := w.campaign(again)
		if reason := w.file(1)["reason"]; reason != "reclaimed by a process of the same identity" {
			w.Errorf("the lock says %v", reason)
		}
		if took := time.Since(began); took > time.Second {
			w.Errorf("it led after %v", took)
		}
		<-ta.Context().Done()
		// A second one that is alive: it takes over once, and the one before does not take
		// the lock back.
		second := w.campaign(w.node("a", reclaim))
		<-tb.Context().Done()
		time.Sleep(time.Second) // until its elector is free
		ctx, cancel := clock.WithTimeout(w.Context(), clock.Go(), time.Hour, errors.New("it waits"))
		defer cancel()
		if term, err := again.Campaign(ctx); err == nil {
			w.Errorf("epoch %d was taken from a live leader", term.Epoch())
		}
		if err := second.Check(0); err != nil {
			w.Error(err)
		}
		w.resign(second)
	})
	if err := (&leader.Options{Reclaim: true}).Validate(); !errors.Is(err, leader.ErrOptions) {
		t.Errorf("Reclaim without an identity: %v", err)
	}
}

// Drain counts from the call, also while the note of the candidates cannot be read.
func TestDrainCountsFromTheCall(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		err := w.node("a").Run(ctx, func(ctx context.Context, _ *leader.Term) error {
			time.Sleep(time.Minute)
			w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Get, Prefix: "lock/candidate", Times: -1, Fault: faultstore.Fault{Drop: true, Hang: true}}))
			start := time.Now()
			cancel()
			<-ctx.Done()
			if took := time.Since(start); took < 7*time.Second || took > 7100*time.Millisecond {
				w.Errorf("the work went on for %v", took)
			}
			return context.Cause(ctx)
		})
		if err != nil {
			w.Error(err)
		}
	})
}

// A store that hangs does not keep a leader that is told to end: with its drain, a second
// for its work and the release it is gone well within the 30 s that Kubernetes gives it.
func TestEndsOnAHungStore(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx, cancel := context.WithCancel(w.Context())
		var start time.Time
		err := w.node("a").Run(ctx, func(ctx context.Context, _ *leader.Term) error {
			time.Sleep(time.Minute)
			w.faulty.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Drop: true, Hang: true} })
			start = time.Now()
			cancel()
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if took := time.Since(start); err != nil && !errors.Is(err, leader.ErrLost) || took > 17*time.Second {
			w.Errorf("it ended after %v with %v", took, err)
		}
	})
}

// If the work ends by itself, no lock has announced that. A candidate that polls often
// leads within moments all the same.
func TestPoll(t *testing.T) {
	inWorld(t, func(w *world) {
		var gap []time.Duration
		rng := rand.New(rand.NewPCG(1, 1))
		var ended time.Time
		names := []string{"a", "b"}
		leads := make(chan struct{}, 1)
		all, end := context.WithCancel(w.Context())
		var wg sync.WaitGroup
		for _, name := range names {
			n := w.node(name, func(o *leader.Options) { o.Poll = 250 * time.Millisecond })
			wg.Go(func() {
				for all.Err() == nil {
					_ = n.Run(all, func(ctx context.Context, _ *leader.Term) error {
						if !ended.IsZero() {
							gap = append(gap, time.Since(ended))
						}
						if len(gap) == 100 {
							leads <- struct{}{}
							<-ctx.Done()
							return context.Cause(ctx)
						}
						time.Sleep(20*time.Second + time.Duration(rng.Int64N(int64(20*time.Second))))
						ended = time.Now()
						return nil
					})
					time.Sleep(10 * time.Second) // the other one's turn
				}
			})
		}
		<-leads
		end()
		wg.Wait()
		gaps(w.T, "the end of the work to the next leader", gap, 300*time.Millisecond, time.Second)
	})
}

// A hook that ends its goroutine, as t.FailNow does, leaves no lock behind and no elector
// that is busy for ever.
func TestHookEndsItsGoroutine(t *testing.T) {
	for _, which := range []string{"elected", "leader"} {
		t.Run(which, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first := true
				exit := func() {
					if first {
						first = false
						runtime.Goexit()
					}
				}
				a := w.node("a", func(o *leader.Options) {
					if which == "elected" {
						o.Hooks.Elected = func(leader.Election) { exit() }
					} else {
						o.Hooks.Leader = func(leader.Record) { exit() }
					}
				})
				done := make(chan struct{})
				go func() {
					defer close(done)
					_, _ = a.Campaign(w.Context())
				}()
				<-done
				start := time.Now()
				w.resign(w.campaign(a))
				if took := time.Since(start); took > 2*time.Second {
					w.Errorf("the next term came after %v", took)
				}
			})
		})
	}
}

// The work ends by itself while its leader makes way for a candidate, and the hook of the end ends its goroutine. The
// candidate leads all the same.
func TestEndedHookEndsItsGoroutine(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a", func(o *leader.Options) { o.Hooks.Ended = func(leader.End) { runtime.Goexit() } })
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = a.Run(w.Context(), func(_ context.Context, t *leader.Term) error {
				time.Sleep(20 * time.Second)
				ended, cancel := context.WithCancel(w.Context())
				cancel()
				_ = t.Resign(ended)
				time.Sleep(20 * time.Millisecond)
				return nil
			})
		}()
		time.Sleep(10 * time.Second)
		won := w.campaigning(w.node("b"))
		<-done
		start := time.Now()
		tb := <-won
		if took := time.Since(start); took > 7*time.Second {
			w.Errorf("the next term came after %v", took)
		}
		w.resign(tb)
	})
}

// Also where requests are slow a leader leaves as soon as a candidate is close, and not only at the end of the
// drain.
func TestHandOverOnASlowStore(t *testing.T) {
	for _, delay := range []time.Duration{20 * time.Millisecond, 80 * time.Millisecond, 110 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.faulty.SetHook(func(faultstore.Op) faultstore.Fault { return faultstore.Fault{Delay: delay} })
				ctx, leave := context.WithCancel(w.Context())
				defer leave()
				var left time.Duration
				var start time.Time
				var ran sync.WaitGroup
				a, leads := w.node("a"), make(chan struct{})
				ran.Go(func() {
					_ = a.Run(ctx, func(work context.Context, _ *leader.Term) error {
						close(leads)
						<-work.Done()
						left = time.Since(start)
						return nil
					})
				})
				<-leads
				won := w.campaigning(w.node("b", func(o *leader.Options) { o.Poll = 500 * time.Millisecond }))
				time.Sleep(time.Minute)
				if _, err := w.mem.Get(w.Context(), "lock/candidate.json", nil); err != nil {
					t.Errorf("the candidate has left no note in a minute: %v", err)
				}
				start = time.Now()
				leave()
				b := <-won
				// The announcement, two reads that meet it, the note, and one that meets the note. Then the swap
				// that ends the term, and what an election takes.
				if gap := time.Since(start); left > 8*delay+3*time.Second/2 || gap > left+8*delay+time.Second/2 {
					t.Errorf("left after %v, and the next led after %v", left, gap)
				}
				ran.Wait()
				w.resign(b)
			})
		})
	}
}
