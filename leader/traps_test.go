package leader_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/leader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// b finds lock 1 expired and is paused just before it creates lock 2. Meanwhile others
// lead up to epoch 5, and all but the newest lock are pruned. Then b's create succeeds
// in a hole, and a read of lock 3 would find nothing.
func TestT04_WinInAPrunedHole(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.node("a"), w.node("b")
		w.resign(w.campaign(a))
		var held *leader.Term
		slept := w.faulty.BeforeFirst(func(op faultstore.Op) bool {
			return op.Client == "b" && op.Kind == faultstore.Put && op.Key == key(2)
		}, func(context.Context) {
			for range 3 {
				w.resign(w.campaign(a))
			}
			held = w.campaign(a)
			if w.prune(leader.PruneOptions{Keep: 1}) == 0 {
				w.Error("nothing was pruned")
			}
		})
		won := w.campaigning(b)
		time.Sleep(3 * time.Minute)
		if !slept() {
			w.Fatal("b has not tried to create lock 2")
		}
		select {
		case tb := <-won:
			w.Errorf("b leads epoch %v while %v is held", tb.Epoch(), held.Epoch())
			w.resign(held)
			w.resign(tb)
			return
		default:
		}
		if f := w.file(2); f["holder"] != "b" || f["state"] != "held" {
			w.Errorf("b did not fall into the hole: %v", f)
		}
		if err := held.Check(0); err != nil {
			w.Errorf("the leader was disturbed: %v", err)
		}
		// The lock in the hole is not reported as the leader's either.
		if rec, err := b.Leader(w.Context()); err != nil || rec.Holder != "a" || rec.Epoch != 5 {
			w.Errorf("leader %v %v, %v", rec.Holder, rec.Epoch, err)
		}
		w.resign(held)
		tb := <-won
		if tb.Epoch() != 6 {
			w.Errorf("b's epoch is %v", tb.Epoch())
		}
		w.resign(tb)
	})
}

// Epochs rise after a release, a crash, pruning and clock jumps, and the newest lock is
// never deleted.
//
// guard:keep-newest. Without this: nobody leads for longer than locks are kept, 90 days by default;
// then a job calls Elector.Prune, which deletes the last lock; the next leader gets epoch 1, and every
// place that has seen a higher epoch refuses its writes.
func TestT15_EpochsNeverBeginAgain(t *testing.T) {
	inWorld(t, func(w *world) {
		last := uint64(0)
		for i := range 12 {
			n := w.node(fmt.Sprintf("n%d", i), func(o *leader.Options) {
				o.Prune = leader.PruneOptions{Keep: 1, For: time.Nanosecond}
			})
			n.clock.setWall(time.Duration(i%3-1) * 1000 * time.Hour)
			term := w.campaign(n)
			if e := uint64(term.Epoch()); e <= last {
				w.Fatalf("epoch %d after %d", e, last)
			} else {
				last = e
			}
			time.Sleep(time.Minute) // long enough to prune
			if i%2 == 0 {
				w.resign(term)
			} else {
				n.st.Crash()
				<-term.Context().Done()
			}
			if locks := w.locks(); locks != 1 {
				w.Fatalf("%d locks are left, want the newest", locks)
			}
			w.file(int(last))
		}
	})
}

// Each write of a lock is conditional, and of many candidates that start together one
// leads at a time.
//
// guard:create. Without this condition: A and B read that lock 7 is expired; A writes lock 8, swaps it,
// and leads; B overwrites lock 8, swaps it, and leads too; both lead in epoch 8 until A's next
// heartbeat is refused.
//
// guard:swap. Without this condition: A leads with lock 7; an operator deposes A, and lets others lead
// at once; B leads with lock 8; A's next heartbeat overwrites lock 7, which is expired, and is applied;
// A leads on beside B, and never learns of B.
func TestT16_EveryWriteIsConditional(t *testing.T) {
	inWorld(t, func(w *world) {
		var leading, most atomic.Int32
		w.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			if _, match := op.Cond.Match(); op.Kind == faultstore.Put && !match && op.Cond != store.IfAbsent() {
				w.Errorf("an unconditional write of %s", op.Key)
			}
		})
		var wg sync.WaitGroup
		for i := range 20 {
			n := w.node(fmt.Sprintf("n%d", i))
			wg.Go(func() {
				err := n.Run(w.Context(), func(context.Context, *leader.Term) error {
					most.Store(max(most.Load(), leading.Add(1)))
					time.Sleep(time.Second)
					leading.Add(-1)
					return nil
				})
				if err != nil {
					w.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 1 {
			w.Errorf("%d led at once", most.Load())
		}
	})
}

// deaf is a store whose writes, once it is cut off, never return, not even when
// their context ends.
type deaf struct {
	store.Store
	cut chan struct{} // closed: cut off
	end chan struct{} // closed: the writes fail
}

func (d *deaf) Put(ctx context.Context, key string, body []byte, opts *store.PutOptions) (store.Info, error) {
	select {
	case <-d.cut:
		<-d.end
		return store.Info{}, errors.New("deaf")
	default:
		return d.Store.Put(ctx, key, body, opts)
	}
}

// The store fails and the heartbeat never returns. The term still ends, by its own
// timer, before anybody else can lead.
//
// guard:own-timer. Without this timer: A's heartbeat hangs in a driver that does not return even when
// its request is cancelled; A's deadline passes; B deposes A and leads; A's work waits for its context
// to be cancelled, and goes on beside B's.
func TestT17_DeadlineNeedsNoNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &deaf{memstore.New(&memstore.Options{Clock: clock.Go()}), make(chan struct{}), make(chan struct{})}
		e, err := leader.New(d, "lock", &leader.Options{Clock: clock.Go()})
		if err != nil {
			t.Fatal(err)
		}
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		close(d.cut)
		cut := time.Now()
		select {
		case <-term.Context().Done():
		case <-time.After(time.Hour):
		}
		if took := time.Since(cut); took > 13500*time.Millisecond {
			t.Errorf("cut off, it led on for %v", took)
		}
		if cause := context.Cause(term.Context()); !errors.Is(cause, leader.ErrExpired) {
			t.Errorf("cause %v", cause)
		}
		if err := term.Check(0); !errors.Is(err, leader.ErrExpired) {
			t.Errorf("Check says %v", err)
		}
		close(d.end)
	})
}

// Run is cancelled while its leader is cut off. The old work ends before the next
// leader's begins: the context is cancelled first, and the lock is released or lapses
// later.
func TestT18_CancelledBeforeReleased(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.node("a"), w.node("b")
		var working, uncancelled atomic.Int32
		work := func(stop time.Duration) func(context.Context, *leader.Term) error {
			return func(ctx context.Context, t *leader.Term) error {
				if working.Add(1) != 1 {
					w.Error("two at work")
				}
				uncancelled.Store(int32(t.Epoch()))
				<-ctx.Done()
				uncancelled.CompareAndSwap(int32(t.Epoch()), 0)
				time.Sleep(stop)
				working.Add(-1)
				return nil
			}
		}
		w.faulty.SetAfter(func(_ context.Context, op faultstore.Op, err error) {
			if e := int(uncancelled.Load()); op.Kind == faultstore.Put && err == nil && e != 0 && op.Key == key(e) {
				if f := w.file(e); f["expired"] == true {
					w.Errorf("lock %d was released before its leader's context was cancelled", e)
				}
			}
		})
		for _, cut := range []bool{false, true} {
			actx, acancel := context.WithCancel(w.Context())
			bctx, bcancel := context.WithCancel(w.Context())
			var wg sync.WaitGroup
			stop := 10 * time.Second
			if cut {
				stop = time.Second // the work goes on until the drain ends, or its own deadline
			}
			wg.Go(func() { _ = a.Run(actx, work(stop)) })
			time.Sleep(20 * time.Second)
			wg.Go(func() { _ = b.Run(bctx, work(0)) })
			time.Sleep(20 * time.Second)
			heal := func() {}
			if cut {
				heal = a.st.Pause()
			}
			acancel()
			time.Sleep(time.Minute)
			if working.Load() != 1 {
				w.Error("nobody followed")
			}
			heal()
			bcancel()
			wg.Wait()
		}
	})
}

// The work takes far longer than the validity to end. Heartbeats go on until it has
// ended, and nobody else leads before.
func TestT19_ReleasedAfterTheWorkHasEnded(t *testing.T) {
	for _, how := range []string{"resign", "cancel"} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, func(w *world) {
				a, b := w.node("a"), w.node("b")
				ctx, cancel := context.WithCancel(w.Context())
				terms := make(chan *leader.Term, 1)
				ran := make(chan error, 1)
				var ended time.Time
				go func() {
					ran <- a.Run(ctx, func(ctx context.Context, t *leader.Term) error {
						terms <- t
						<-ctx.Done()
						time.Sleep(2 * time.Minute)
						ended = time.Now()
						return nil
					})
				}()
				ta := <-terms
				won := w.campaigning(b)
				time.Sleep(30 * time.Second)
				switch how {
				case "resign":
					w.resign(ta)
				case "cancel":
					cancel()
				}
				tb := <-won
				if ended.IsZero() {
					w.Error("b leads while a's work has not ended")
				}
				if gap := time.Since(ended); gap > time.Second+500*time.Millisecond {
					w.Errorf("b followed only after %v", gap)
				}
				if err := <-ran; err != nil {
					w.Errorf("Run: %v", err)
				}
				cancel()
				w.resign(tb)
			})
		})
	}
}

// client-go's callbacks over Run and Hooks, as in the example: what stops the work
// runs exactly once, after the work, and never if this process has not led.
func TestT20_CallbacksOnceAndInOrder(t *testing.T) {
	inWorld(t, func(w *world) {
		var mu sync.Mutex
		var events []string
		note := func(s string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, s)
		}
		candidate := func(name string) *node {
			return w.node(name, func(o *leader.Options) {
				o.Hooks.Leader = func(r leader.Record) {
					if r.State == leader.Held {
						note(name + " sees " + r.Holder)
					}
				}
			})
		}
		run := func(ctx context.Context, n *node) <-chan error {
			done := make(chan error, 1)
			go func() {
				done <- n.Run(ctx, func(ctx context.Context, _ *leader.Term) error {
					defer note(n.name + " stopped")
					note(n.name + " started")
					<-ctx.Done()
					time.Sleep(3 * time.Second)
					note(n.name + " ended")
					return context.Cause(ctx)
				})
			}()
			return done
		}
		a, b := candidate("a"), candidate("b")
		actx, acancel := context.WithCancel(w.Context())
		adone := run(actx, a)
		time.Sleep(10 * time.Second)
		bctx, bcancel := context.WithCancel(w.Context())
		bdone := run(bctx, b)
		time.Sleep(30 * time.Second)
		bcancel() // it has never led
		if err := <-bdone; err != nil {
			w.Errorf("b: %v", err)
		}
		acancel()
		if err := <-adone; err != nil {
			w.Errorf("a: %v", err)
		}
		want := []string{"a sees a", "a started", "b sees a", "a ended", "a stopped"}
		if !slices.Equal(events, want) {
			w.Errorf("got  %q\nwant %q", events, want)
		}

		// Lost, not cancelled: the same.
		events = nil
		adone = run(w.Context(), a)
		time.Sleep(10 * time.Second)
		a.st.Crash()
		if err := <-adone; !errors.Is(err, leader.ErrExpired) {
			w.Errorf("a: %v", err)
		}
		if want := []string{"a sees a", "a started", "a ended", "a stopped"}; !slices.Equal(events, want) {
			w.Errorf("got  %q\nwant %q", events, want)
		}
	})
}

// RequestTimeout ends a request that hangs, and the retry saves the term. No request
// outlives the term.
//
// guard:capped-heartbeat. Without this: the store does not answer A's heartbeat, and A retries it for
// hours; A's term is long over, but A's elector still waits for that answer; it can neither campaign
// again nor finish Resign.
func TestT21_HangingRequestIsCutOff(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		term := w.campaign(a)
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Client: "a", Fault: faultstore.Fault{Drop: true, Hang: true}}))
		time.Sleep(time.Minute)
		if err := term.Check(0); err != nil {
			w.Fatalf("one hanging request ended the term: %v", err)
		}
		// All requests hang, and RequestTimeout is longer than what is left of the term. The
		// last request ends with the term.
		w.faulty.SetHook(func(op faultstore.Op) faultstore.Fault {
			return faultstore.Fault{Drop: true, Hang: true}
		})
		var last atomic.Int64
		began := time.Now()
		w.faulty.SetAfter(func(context.Context, faultstore.Op, error) { last.Store(int64(time.Since(began))) })
		<-term.Context().Done()
		over := time.Since(began)
		time.Sleep(time.Hour)
		if late := time.Duration(last.Load()) - over; late > time.Millisecond {
			w.Errorf("a request outlived the term by %v", late)
		}
	})
}

// A candidate is paused between its last write and the last listing. It must not lead on
// a lock that has lapsed meanwhile.
func TestT22_DeadlineCheckedAfterWinning(t *testing.T) {
	for _, pause := range []time.Duration{14 * time.Second, time.Hour} {
		inWorld(t, func(w *world) {
			w.faulty.SetHook(faultstore.Script(faultstore.Rule{
				Kind: faultstore.List, Client: "a", Skip: 1, Fault: faultstore.Fault{ReplyDelay: pause},
			}))
			// The listing must be able to take that long.
			a := w.node("a", func(o *leader.Options) { o.Clock = &slowTimers{o.Clock.(*nodeClock)} })
			won := w.campaigning(a)
			time.Sleep(pause / 2)
			if pause > time.Minute {
				tb := w.campaign(w.node("b"))
				time.Sleep(pause)
				select {
				case ta := <-won:
					w.Fatalf("a leads epoch %v, b leads %v", ta.Epoch(), tb.Epoch())
				default:
				}
				w.resign(tb)
			}
			ta := <-won
			if err := ta.Check(0); err != nil {
				w.Errorf("a was handed a term that is over: %v", err)
			}
			w.resign(ta)
		})
	}
}

// slowTimers disables RequestTimeout, so that a test can make one request last.
type slowTimers struct{ *nodeClock }

func (c *slowTimers) AfterFunc(d time.Duration, f func()) clock.Timer {
	if d == 3*time.Second { // RequestTimeout
		d = 24 * time.Hour
	}
	return c.nodeClock.AfterFunc(d, f)
}

// A heartbeat that was abandoned lands after its leader has released the lock. It
// changes nothing.
func TestT23_LateHeartbeatResurrectsNothing(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b := w.node("a"), w.node("b")
		ta := w.campaign(a)
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{
			Kind: faultstore.Put, Client: "a",
			Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrTimeout, Late: &faultstore.Late{Copies: 3}},
		}))
		time.Sleep(10 * time.Second) // one heartbeat, retried
		w.resign(ta)
		if n := w.faulty.Release(w.Context(), nil); n != 3 {
			w.Fatalf("%d late heartbeats landed", n)
		}
		if f := w.file(1); f["state"] != "expired" {
			w.Fatalf("the lock has come back to life: %v", f)
		}
		tb := w.campaign(b)
		if tb.Epoch() != 2 {
			w.Errorf("b's epoch is %v", tb.Epoch())
		}
		w.resign(tb)
	})
}

// A candidate that starts now replaces at once a leader that is long dead. It waits for
// the validity of one that has just died.
func TestT24_ColdStart(t *testing.T) {
	for dead, most := range map[time.Duration]time.Duration{
		time.Hour:        time.Second,
		21 * time.Second: time.Second,
		time.Second:      18 * time.Second,
	} {
		inWorld(t, func(w *world) {
			a, b := w.node("a"), w.node("b")
			ta := w.campaign(a)
			a.st.Crash()
			time.Sleep(dead)
			began := time.Now()
			tb := w.campaign(b)
			if took := time.Since(began); took > most {
				w.Errorf("dead for %v: it took %v", dead, took)
			}
			if dead == time.Second && ta.Check(0) == nil {
				w.Error("b leads before a's term is over")
			}
			w.resign(tb)
			<-ta.Context().Done()
		})
	}
}

// A hundred candidates saw the last heartbeat at the same moment, as after a restart of
// all. They do not all write at the same moment when the lock lapses.
func TestT25_NoHerdAtExpiry(t *testing.T) {
	slow := func(faultstore.Op) faultstore.Fault {
		return faultstore.Fault{Delay: 50 * time.Millisecond, ReplyDelay: 50 * time.Millisecond}
	}
	inWorldOf(t, memstore.Options{}, faultstore.Options{Hook: slow}, func(w *world) {
		const candidates = 100
		a := w.node("a")
		ta := w.campaign(a)
		time.Sleep(time.Minute)
		a.st.Crash()
		crashed := time.Now()
		ctx, cancel := context.WithCancel(w.Context())
		var wg sync.WaitGroup
		won := make(chan *leader.Term, candidates)
		for i := range candidates {
			n := w.node(fmt.Sprintf("n%d", i))
			wg.Go(func() {
				if t, err := n.Campaign(ctx); err == nil {
					won <- t
				}
			})
		}
		w.faulty.ResetCounts()
		term := <-won
		time.Sleep(3 * time.Second)
		if took := time.Since(crashed) - 3*time.Second; took > 17*time.Second {
			w.Errorf("failover took %v", took)
		}
		// The jitter is up to 0.75 s, and a read and a swap take 0.2 s. So a quarter of the
		// candidates may find the lock lapsed before it is deposed, not all of them.
		puts := w.faulty.Counts().Of(faultstore.Put, "")
		w.Logf("%d writes", puts)
		if puts > candidates/2 {
			w.Errorf("%d writes for one takeover among %d candidates", puts, candidates)
		}
		cancel()
		wg.Wait()
		w.resign(term)
		<-ta.Context().Done()
	})
}

// The time of day does not matter, neither the nodes' nor that in the record.
func TestT26_WallClocksDoNotMatter(t *testing.T) {
	inWorld(t, func(w *world) {
		a, b, o := w.node("a"), w.node("b"), w.node("o")
		a.clock.setWall(-10000 * time.Hour)
		b.clock.setWall(10000 * time.Hour)
		ta := w.campaign(a)
		won := w.campaigning(b)
		for range 60 {
			time.Sleep(10 * time.Second)
			a.clock.setWall(time.Duration(time.Now().UnixNano()%1e15) - 5e14)
			if rec, err := o.Leader(w.Context()); err != nil || rec.Holder != "a" {
				w.Fatalf("leader %q, %v", rec.Holder, err)
			}
		}
		if err := ta.Check(0); err != nil {
			w.Fatal(err)
		}
		a.st.Crash()
		crashed := time.Now()
		tb := <-won
		if took := time.Since(crashed); took > 17*time.Second {
			w.Errorf("failover took %v", took)
		}
		w.resign(tb)
	})
}

// The machine sleeps, which timers and Go's monotonic clock do not notice. The first
// Check does, before any side effect, and cancels the context.
//
// guard:check-clock. Without this: A's machine sleeps for an hour, and B deposes A and leads; A's
// machine wakes up, and the timer that cancels the context is up to a second late; a Check in this
// second says that A's term goes on.
func TestT27_SuspendIsCounted(t *testing.T) {
	inWorld(t, func(w *world) {
		a := w.node("a")
		term := w.campaign(a)
		if err := term.Check(time.Second); err != nil {
			w.Fatal(err)
		}
		a.clock.suspend(time.Hour)
		if left := term.Remaining(); left != 0 {
			w.Errorf("after an hour of sleep %v remain", left)
		}
		if err := term.Check(0); !errors.Is(err, leader.ErrExpired) {
			w.Errorf("Check says %v", err)
		}
		if cause := context.Cause(term.Context()); !errors.Is(cause, leader.ErrExpired) {
			w.Errorf("the context goes on: %v", cause)
		}
	})
}
