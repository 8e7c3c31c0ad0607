package leader_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// A term from the win to the released lock.
func TestFirstLeader(t *testing.T) {
	inWorld(t, func(w *world) {
		term := w.campaign(w.node("a"))
		if term.Epoch() != 1 || uint64(term.Token().Epoch()) != 1 || term.Check(time.Second) != nil {
			w.Fatalf("epoch %v, token %v, %v", term.Epoch(), term.Token(), term.Check(0))
		}
		time.Sleep(10 * time.Minute)
		if err := term.Check(time.Second); err != nil {
			w.Fatalf("the term did not last: %v", err)
		}
		w.resign(term)
		if f := w.file(1); f["expired"] != true || f["state"] != "expired" || f["reason"] != "resigned" || f["expired_by"] != "a" {
			w.Fatalf("lock file %v", f)
		}
		if cause := context.Cause(term.Context()); !errors.Is(cause, leader.ErrResigned) || !errors.Is(cause, leader.ErrLost) {
			w.Fatalf("cause %v", cause)
		}
	})
}

func TestCheckIsCheap(t *testing.T) {
	e, err := leader.New(memstore.New(nil), "lock", nil) // the machine's own clock
	if err != nil {
		t.Fatal(err)
	}
	term, err := e.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := term.Check(time.Hour); !errors.Is(err, leader.ErrShort) || errors.Is(err, leader.ErrLost) || !strings.Contains(err.Error(), "needs 1h0m0s, 1") {
		t.Fatal(err)
	}
	for name, f := range map[string]func(){
		"Check": func() {
			if err := term.Check(time.Second); err != nil {
				t.Fatal(err)
			}
		},
		"Remaining": func() {
			if left := term.Remaining(); left <= 0 || left > 13500*time.Millisecond {
				t.Fatal(left)
			}
		},
		"Progress": term.Progress,
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
	if err := term.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if term.Check(0) == nil {
			t.Fatal("it is over")
		}
	}); n != 0 {
		t.Errorf("Check of a term that is over allocates %v times", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	e, err := leader.New(memstore.New(nil), "lock", nil)
	if err != nil {
		b.Fatal(err)
	}
	term, err := e.Campaign(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = term.Resign(context.Background()) }()
	b.ReportAllocs()
	for b.Loop() {
		if term.Check(time.Second) != nil {
			b.Fatal("short")
		}
	}
}

func TestConfirm(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		term := w.campaign(a)
		w.faulty.ResetCounts()
		began := time.Now()
		for range 10 {
			if err := term.Confirm(w.Context()); err != nil {
				w.Fatal(err)
			}
		}
		if c := w.faulty.Counts(); c.Of("", "") != 10 || time.Since(began) > 500*time.Millisecond {
			w.Errorf("10 confirmations took %v and %d requests", time.Since(began), c.Of("", ""))
		}
		// Deposed, and it has not noticed: Check cannot know, Confirm does.
		if _, err := w.node("op").StepDown(w.Context(), &leader.StepDownOptions{Immediate: true}); err != nil {
			w.Fatal(err)
		}
		if err := term.Check(0); err != nil {
			w.Errorf("Check: %v", err)
		}
		if err := term.Confirm(w.Context()); !errors.Is(err, leader.ErrDeposed) {
			w.Errorf("Confirm: %v", err)
		}
		if err := term.Check(0); !errors.Is(err, leader.ErrDeposed) {
			w.Errorf("Check after Confirm: %v", err)
		}
	})
}

// A heartbeat that was sent before the call of Confirm proves nothing.
func TestConfirmWaitsForALaterHeartbeat(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		term := w.campaign(a)
		first, second := make(chan struct{}), make(chan struct{})
		w.faulty.SetHook(faultstore.Script(
			faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{HoldReply: first}},
			faultstore.Rule{Kind: faultstore.Put, Skip: 1, Fault: faultstore.Fault{Hold: second}},
		))
		time.Sleep(6100 * time.Millisecond) // a heartbeat is applied, its reply is held back
		confirmed := make(chan error, 1)
		go func() { confirmed <- term.Confirm(w.Context()) }()
		time.Sleep(time.Second)
		close(first)
		time.Sleep(time.Second)
		select {
		case err := <-confirmed:
			w.Errorf("confirmed by an old heartbeat: %v", err)
		default:
			close(second)
			if err := <-confirmed; err != nil {
				w.Error(err)
			}
		}
		w.resign(term)
	})
}

// slowStore says that it allows one write of each key per second.
type slowStore struct{ store.Store }

func (s slowStore) Traits() store.Traits {
	return store.Traits{Name: "slow://", MinRewrite: time.Second}
}

// strictStore rejects a write of a key within a second of the one before, as GCS
// does.
type strictStore struct {
	slowStore
	mu      sync.Mutex
	written map[string]time.Time
}

func (s *strictStore) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.written[key]; ok && time.Since(last) < time.Second {
		return store.Info{}, &store.Error{Op: "put", Key: key, Err: errors.New("429 Too Many Requests")}
	}
	info, err := s.slowStore.Put(ctx, key, body, opts)
	if err == nil {
		s.written[key] = time.Now()
	}
	return info, err
}

// On such a store no write of a campaign or a term is rejected.
func TestElectionKeepsMinRewrite(t *testing.T) {
	inWorld(t, func(w *world) {
		n := w.node("a")
		strict := &strictStore{slowStore: slowStore{w.mem}, written: map[string]time.Time{}}
		var refused atomic.Int32
		faulty := faultstore.New(strict, &faultstore.Options{Clock: clock.Go(), After: func(_ context.Context, op faultstore.Op, err error) {
			if err != nil && op.Kind == faultstore.Put {
				refused.Add(1)
			}
		}})
		e, err := leader.New(faulty, "lock", &leader.Options{Clock: n.clock, Identity: "a"})
		if err != nil {
			w.Fatal(err)
		}
		for range 3 {
			ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
			term, err := e.Campaign(ctx)
			cancel()
			if err != nil {
				w.Fatal(err)
			}
			time.Sleep(time.Minute)
			for range 5 {
				if err := term.Confirm(w.Context()); err != nil {
					w.Fatal(err)
				}
			}
			w.resign(term)
		}
		if n := refused.Load(); n != 0 {
			w.Errorf("%d writes came too early", n)
		}
	})
}

// A term does not outlive its work: without progress there are no heartbeats.
func TestStall(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.node("a", func(o *leader.Options) { o.StallAfter = 20 * time.Second }), w.node("b")
		release := make(chan struct{})
		last := make(chan time.Time, 1)
		ran := make(chan error, 1)
		go func() {
			ran <- a.Run(w.Context(), func(_ context.Context, t *leader.Term) error {
				for range 30 {
					time.Sleep(10 * time.Second)
					t.Progress()
				}
				began := time.Now()
				last <- began
				<-t.Context().Done()
				if took := time.Since(began); took < 20*time.Second || took > 20*time.Second+time.Millisecond {
					w.Errorf("stalled after %v", took)
				}
				<-release // it hangs, and does not notice that the term is over
				return nil
			})
		}()
		time.Sleep(10 * time.Second)
		tb := w.campaign(b)
		if since := time.Since(<-last); since > 20*time.Second+17*time.Second {
			w.Errorf("b leads %v after the last progress", since)
		}
		close(release)
		if err := <-ran; !errors.Is(err, leader.ErrStalled) {
			w.Errorf("Run: %v", err)
		}
		if err := tb.Check(0); err != nil {
			w.Error(err)
		}
		w.resign(tb)
	})
}

// An operator deposes a leader that is cut off: nobody follows before its own
// deadline. A leader that learns of it makes way at once.
func TestStepDown(t *testing.T) {
	for _, cut := range []bool{false, true} {
		inWorld(t, func(w *world) {
			a, b, op := w.node("a"), w.node("b"), w.node("op")
			var working atomic.Bool
			ran := make(chan error, 1)
			go func() {
				ran <- a.Run(w.Context(), func(ctx context.Context, _ *leader.Term) error {
					working.Store(true)
					<-ctx.Done()
					time.Sleep(time.Second)
					working.Store(false)
					return nil
				})
			}()
			time.Sleep(30 * time.Second)
			won := w.campaigning(b)
			time.Sleep(30 * time.Second)
			if cut {
				defer a.st.Pause()()
			}
			began := time.Now()
			old, err := op.StepDown(w.Context(), &leader.StepDownOptions{Reason: "maintenance"})
			if err != nil || old.Holder != "a" || old.State != leader.Held {
				w.Errorf("%+v, %v", old, err)
			}
			tb := <-won
			took := time.Since(began)
			if working.Load() && !cut {
				w.Error("b leads while a works")
			}
			if most := map[bool]time.Duration{false: 9 * time.Second, true: 17 * time.Second}[cut]; took > most {
				w.Errorf("cut %v: it took %v", cut, took)
			}
			f := w.file(1)
			if f["reason"] != "stepped down: maintenance" || f["expired"] != true {
				w.Errorf("lock %v", f)
			}
			if !cut {
				if err := <-ran; !errors.Is(err, leader.ErrDeposed) {
					w.Errorf("Run: %v", err)
				}
			} else {
				a.st.Crash()
				<-ran
			}
			w.resign(tb)
			if _, err := op.StepDown(w.Context(), nil); !errors.Is(err, leader.ErrNoLeader) {
				w.Errorf("nobody leads: %v", err)
			}
		})
	}
}

// The work of a leader ends right after an operator has deposed it, before its next heartbeat. Its release frees
// the lock, so nobody waits for the rest of the validity.
func TestStepDownMeetsARelease(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, op := w.node("a"), w.node("b"), w.node("op")
		ta := w.campaign(a)
		won := w.campaigning(b)
		time.Sleep(20 * time.Second)
		if _, err := op.StepDown(w.Context(), &leader.StepDownOptions{Reason: "maintenance"}); err != nil {
			w.Fatal(err)
		}
		began := time.Now()
		w.resign(ta)
		tb := <-won
		if took := time.Since(began); took > 7*time.Second { // b reads the lock once in 6 s
			w.Errorf("b led only after %v", took)
		}
		if f := w.file(1); f["reason"] != "stepped down: maintenance" || f["expired_by"] != "op" {
			w.Errorf("lock %v", f)
		}
		w.resign(tb)
	})
}

// A term is lost by a step-down, and its leader, which has no work in Run, resigns with a context that has ended.
// The lock is released all the same.
func TestResignOfALostTermWithoutWaiting(t *testing.T) {
	inWorld(t, func(w *world) {
		a, op := w.node("a"), w.node("op")
		term := w.campaign(a)
		time.Sleep(20 * time.Second)
		if _, err := op.StepDown(w.Context(), nil); err != nil {
			w.Fatal(err)
		}
		<-term.Context().Done()
		ended, cancel := context.WithCancel(w.Context())
		cancel()
		_ = term.Resign(ended)
		time.Sleep(time.Second)
		if f := w.file(1); f["wait_ms"] != nil {
			w.Errorf("lock %v", f)
		}
	})
}

// A caller of Resign gives up while the release is under way. It returns at once, and the lock is released.
func TestResignGoesOnWithoutItsCaller(t *testing.T) {
	inWorld(t, func(w *world) {
		a, op := w.node("a"), w.node("op")
		took, ran := make(chan time.Duration, 1), make(chan error, 1)
		go func() {
			ran <- a.Run(w.Context(), func(ctx context.Context, t *leader.Term) error {
				<-ctx.Done()
				w.faulty.SetHook(func(op faultstore.Op) (f faultstore.Fault) {
					if op.Client == "a" && op.Kind == faultstore.Put {
						f.Delay = 2 * time.Second
					}
					return f
				})
				go func() {
					began := time.Now()
					ctx, cancel := context.WithTimeout(w.Context(), time.Second)
					defer cancel()
					_ = t.Resign(ctx)
					took <- time.Since(began)
				}()
				time.Sleep(100 * time.Millisecond)
				return nil
			})
		}()
		time.Sleep(20 * time.Second)
		if _, err := op.StepDown(w.Context(), nil); err != nil {
			w.Fatal(err)
		}
		if err := <-ran; !errors.Is(err, leader.ErrDeposed) {
			w.Errorf("Run: %v", err)
		}
		if d := <-took; d != time.Second {
			w.Errorf("Resign returned after %v", d)
		}
		if f := w.file(1); f["wait_ms"] != nil {
			w.Errorf("lock %v", f)
		}
	})
}

// TestStepDownSparesTheSuccessor: while an operator's swap is under way, or the answer to it, the leader is
// replaced. Its successor goes on.
//
// guard:step-down-once. Without this check: A leads; an operator's swap deposes A, but its answer is
// lost; A's work ends, and B leads; the operator's process sees a lock that it does not know, begins
// again, and deposes B.
func TestStepDownSparesTheSuccessor(t *testing.T) {
	for name, applied := range map[string]bool{"the swap is late": false, "its answer is lost": true} {
		inWorld(t, func(w *world) {
			a, b, op := w.node("a"), w.node("b"), w.node("op")
			ta := w.campaign(a)
			held := make(chan struct{})
			rules := []faultstore.Rule{{Kind: faultstore.Put, Client: "op", Times: -1, Fault: faultstore.Fault{Hold: held}}}
			if applied {
				rules[0].Fault = faultstore.Fault{HoldReply: held, Err: faultstore.ErrReset}
				rules = append(rules, faultstore.Rule{Kind: faultstore.Get, Client: "op", Skip: 1, Times: -1, Fault: faultstore.Fault{Hold: held}})
			}
			w.faulty.SetHook(faultstore.Script(rules...))
			type verdict struct {
				leader.Record
				error
			}
			done := make(chan verdict, 1)
			go func() {
				old, err := op.StepDown(w.Context(), nil)
				done <- verdict{old, err}
			}()
			if !applied {
				time.Sleep(time.Second)
				a.st.Crash()
			} else {
				<-ta.Context().Done()
				if err := ta.Resign(w.Context()); !errors.Is(err, leader.ErrDeposed) {
					w.Errorf("%s: resigning after the work has ended: %v", name, err)
				}
			}
			tb := w.campaign(b)
			w.faulty.SetHook(nil)
			close(held)
			if v := <-done; v.error != nil || v.Holder != "a" || v.Epoch != 1 {
				w.Errorf("%s: %+v, %v", name, v.Record, v.error)
			}
			time.Sleep(time.Minute)
			if err := tb.Confirm(w.Context()); err != nil {
				w.Errorf("%s: the successor: %v", name, err)
			}
			w.resign(tb)
		})
	}
}

// The caller's context ends during a takeover. The lock that was just created is
// released, so that others need not wait for its validity.
func TestCancelledCampaignFreesItsLock(t *testing.T) {
	for put := 1; put <= 2; put++ {
		inWorld(t, func(w *world) {
			a, b := w.node("a"), w.node("b")
			ctx, cancel := context.WithCancel(w.Context())
			var n atomic.Int64
			w.faulty.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
				if op.Kind == faultstore.Put && op.Client == "a" && n.Add(1) == int64(put) {
					cancel()
				}
			})
			if _, err := a.Campaign(ctx); !errors.Is(err, context.Canceled) {
				w.Fatalf("Campaign: %v", err)
			}
			began := time.Now()
			tb := w.campaign(b)
			if took := time.Since(began); took > time.Second {
				w.Errorf("b had to wait for %v", took)
			}
			w.resign(tb)
		})
	}
}

func TestOneTermAtATime(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		term := w.campaign(a)
		if _, err := a.Campaign(w.Context()); !errors.Is(err, leader.ErrBusy) {
			w.Errorf("a second campaign: %v", err)
		}
		w.resign(term)
		w.resign(term) // again
		w.resign(w.campaign(a))
	})
}

// The lock of a lost term is released once the work has ended, if nobody else has
// expired it.
func TestLostTermIsReleasedAfterTheWork(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		ran := make(chan error, 1)
		var resume func()
		go func() {
			ran <- a.Run(w.Context(), func(ctx context.Context, _ *leader.Term) error {
				resume = a.st.Pause()
				<-ctx.Done()
				resume()
				time.Sleep(time.Second)
				if f := w.file(1); f["state"] != "held" {
					w.Errorf("released under the work: %v", f)
				}
				return nil
			})
		}()
		if err := <-ran; !errors.Is(err, leader.ErrExpired) {
			w.Error(err)
		}
		if f := w.file(1); f["state"] != "expired" || f["reason"] != "expired" {
			w.Errorf("lock %v", f)
		}
	})
}
