package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
)

// guard:lock-lapse. Without the whole wait: B reads a session that A is about to renew, and takes A's name a moment later,
// while A works on.
func TestCrash(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 20 * time.Second} { // before and after the first heartbeat
		inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
			a, b := w.process("a"), w.process("b")
			k := a.acquire("invoices")
			time.Sleep(after)
			a.st.Crash()
			crashed := time.Now()
			next := b.acquire("invoices")
			took := time.Since(crashed)
			if next.Token().Epoch() <= k.Token().Epoch() {
				t.Errorf("token %v after %v", next.Token(), k.Token())
			}
			if !errors.Is(context.Cause(k.Context()), lock.ErrExpired) {
				t.Errorf("b has the name, and a's context has the cause %v", context.Cause(k.Context()))
			}
			if took < validity/2 || took > validity*5/4 {
				t.Errorf("a crash after %v was noticed after %v", after, took)
			}
			if n := w.objects("locks/session/"); n != 1 {
				t.Errorf("%d sessions have an object", n)
			}
		})
	}
}

// Programs that a scheduler starts never wait. They free a crashed holder's name all the same.
func TestCrashBeforeTry(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		a := w.process("a")
		a.acquire("invoices")
		a.st.Crash()
		for minute := range 3 {
			time.Sleep(time.Minute)
			p := w.process(name(minute))
			_, err := p.TryAcquire(w.Context(), "invoices")
			switch {
			case minute == 0 && !errors.Is(err, lock.ErrHeld): // who looks first leaves a placeholder
				t.Errorf("the first: %v", err)
			case minute == 1 && err != nil:
				t.Errorf("the second: %v", err)
			}
			p.close()
		}
	})
}

// A job that runs once a week never waits either, and what the last run has left to watch was swept meanwhile.
//
// guard:lock-placed. Without the note: each run finds no object of the crashed holder's session, leaves a placeholder, and gives
// up. Others sweep that, and nobody gets the name again, for ever.
func TestCrashBeforeWeeklyTry(t *testing.T) {
	const week = 7 * 24 * time.Hour
	for _, after := range []time.Duration{time.Second, 20 * time.Second} { // before and after the first heartbeat
		inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
			a := w.process("a")
			a.acquire("invoices")
			time.Sleep(after)
			a.st.Crash()
			for i := range 3 {
				time.Sleep(week - time.Hour)
				sweeper := w.process("sweeper")
				sweeper.acquire("other")
				time.Sleep(time.Hour)
				sweeper.close()
				p := w.process(name(i))
				_, err := p.TryAcquire(w.Context(), "invoices")
				if i == 1 && err != nil {
					t.Errorf("a holder crashed after %v, and two weeks later: %v", after, err)
				}
				p.close()
			}
		})
	}
}

// A lock whose name others try now and then stays held.
func TestHeldAndTried(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		k := w.process("a").acquire("invoices")
		for i := range 3 {
			p := w.process(name(i))
			if _, err := p.TryAcquire(w.Context(), "invoices"); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("try %d: %v", i, err)
			}
			p.close()
			time.Sleep(time.Hour)
		}
		if err := k.Check(0); err != nil {
			t.Error(err)
		}
	})
}

// guard:lock-check. Without the comparison: the machine was suspended for an hour, its timers have not fired yet, and
// Check says that the lock is held.
func TestSuspended(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		sleeps := &clock.Suspendable{}
		a, b := w.processOn("a", sleeps), w.process("b")
		k := a.acquire("invoices")
		sleeps.Suspend(time.Hour)
		if err := k.Check(0); !errors.Is(err, lock.ErrExpired) || k.Held() != 0 {
			t.Errorf("Check right after a suspend: %v", err)
		}
		time.Sleep(2 * time.Second)
		if !errors.Is(context.Cause(k.Context()), lock.ErrExpired) {
			t.Errorf("the context's cause is %v", context.Cause(k.Context()))
		}
		next := b.acquire("invoices")
		if err := k.Release(w.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("a late release: %v", err)
		}
		if err := next.Check(0); err != nil {
			t.Errorf("the release of a lost lock frees another's: %v", err)
		}
	})
}

// guard:lock-verify. Without the reads: A's machine stood still for two days, with its clock, right after A acquired the
// name. B took the name, and what said so was swept. A's first heartbeat creates its session anew, and A works beside
// B for as long as it lives.
//
// guard:lock-depose. Without the swap: A's machine stood still, with its clock, B took its name, and A goes on sending
// heartbeats that are applied.
func TestClockStoodStill(t *testing.T) {
	for _, c := range []struct {
		when  time.Duration // after the acquisition
		swept bool
	}{{time.Second, false}, {time.Second, true}, {10 * time.Second, false}, {10 * time.Second, true}} {
		inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
			a, b := w.process("a"), w.process("b")
			k := a.acquire("invoices")
			time.Sleep(c.when)
			thaw := a.freeze(true)
			next := b.acquire("invoices")
			if c.swept {
				w.sweep()
			}
			thaw()
			time.Sleep(validity)
			if err := k.Check(0); !errors.Is(err, lock.ErrLost) {
				t.Errorf("frozen after %v, swept %v: a still believes that it holds the name: %v", c.when, c.swept, err)
			}
			var gate fence.Gate
			write := func(k *lock.Lock) error {
				return gate.Do(w.Context(), k.Token().Epoch(), func() error { return nil })
			}
			if err := write(next); err != nil {
				t.Error(err)
			}
			if err := write(k); !errors.Is(err, fence.ErrFenced) {
				t.Errorf("the lower token: %v", err)
			}
		})
	}
}

// guard:lock-undo. Without the write: the request of a caller that gave up lands later. The name is then held by a process
// that does not know of it, for as long as that lives.
func TestGivenUp(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		kept := a.acquire(sameBucketNot(t, "invoices")) // keeps a's session alive
		for round := range 3 {
			w.faulty.SetHook(faultstore.Script(faultstore.Rule{
				Kind: faultstore.Put, Prefix: lock.BucketKey("invoices"), Client: "a", Times: 1,
				Fault: faultstore.Fault{Drop: true, Hang: true, Late: &faultstore.Late{After: 20 * time.Second}},
			}))
			ctx, cancel := context.WithTimeout(w.Context(), time.Second)
			_, err := a.Acquire(ctx, "invoices")
			cancel()
			if !errors.Is(err, store.ErrUnknown) && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("round %d: %v", round, err)
			}
			time.Sleep(time.Minute)
			w.faulty.Land(w.Context())
			k, err := b.TryAcquire(w.Context(), "invoices")
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			b.release(k)
		}
		if err := kept.Check(0); err != nil {
			t.Error(err)
		}
	})
}

// guard:lock-flight. Without the comparison: A acquires x when its first heartbeat is due, and its machine stands still, with
// its clock, before the answer is read. B takes x, and what says so is swept. A's first heartbeat creates its session anew, and
// reads the locks that A holds by then. Then A reads the answer, and works on x beside B for as long as it lives.
func TestAnsweredAfterFirstHeartbeat(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		kept := a.acquire(sameBucketNot(t, "x"))
		time.Sleep(5 * time.Second)
		answer := make(chan struct{})
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{
			Kind: faultstore.Put, Prefix: lock.BucketKey("x"), Client: "a", Times: 1, Fault: faultstore.Fault{HoldReply: answer},
		}))
		got := make(chan *lock.Lock, 1)
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		go func() {
			k, _ := a.Acquire(ctx, "x")
			got <- k
		}()
		time.Sleep(100 * time.Millisecond)
		thaw := a.freeze(true)
		b.acquire("x")
		w.sweep()
		thaw()
		time.Sleep(2 * time.Second) // the heartbeat
		close(answer)
		time.Sleep(time.Second)
		if err := kept.Check(0); err != nil {
			t.Error(err)
		}
		cancel()
		if k := <-got; k != nil && k.Check(0) == nil {
			t.Error("a and b both hold x")
		}
	})
}

// A store that refuses a release, as while credentials are being replaced, frees the name later: also if this process lives on
// with other locks.
//
// guard:lock-denied. Without this check: the store refuses one release, because credentials are being replaced; the process
// lives on for months, and renews its session; nobody gets the name.
func TestReleaseDenied(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		kept := a.acquire(sameBucketNot(t, "invoices"))
		k := a.acquire("invoices")
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{
			Kind: faultstore.Put, Prefix: lock.BucketKey("invoices"), Times: 1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrDenied},
		}))
		if err := k.Release(w.Context()); !errors.Is(err, lock.ErrNotReleased) || !errors.Is(err, store.ErrDenied) {
			t.Errorf("Release that is denied: %v", err)
		}
		time.Sleep(validity)
		next, err := b.TryAcquire(w.Context(), "invoices")
		if err != nil {
			t.Fatal(err)
		}
		b.release(next)
		if err := kept.Check(0); err != nil {
			t.Error(err)
		}
	})
}

// A release whose answer is lost frees the name, and a store that is away frees it when it is back.
func TestReleaseWithFaults(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k := a.acquire("invoices")
		down := faultstore.Rule{Client: "a", Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable}}
		w.faulty.SetHook(faultstore.Script(down))
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if err := k.Release(ctx); !errors.Is(err, lock.ErrNotReleased) {
			t.Errorf("Release without a store: %v", err)
		}
		w.faulty.SetHook(nil)
		b.release(b.acquire("invoices"))
		k = a.acquire("invoices")
		w.faulty.SetHook(faultstore.Script(faultstore.Rule{Kind: faultstore.Put, Fault: faultstore.Fault{Err: faultstore.ErrReset}}))
		a.release(k)
	})
}

// guard:lock-session. Without this: A's heartbeats fail. A acquires y when its session is 5 s old, with a deadline of its
// own. B, which waits for x, expires A's session. C finds it expired and takes y at once, while A works on y.
func TestOneDeadline(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: faultstore.Script(faultstore.Rule{
		Kind: faultstore.Put, Prefix: "locks/session/", Client: "a", Times: -1, Fault: faultstore.Fault{Drop: true, Err: faultstore.ErrUnavailable},
	})}, func(w *world) {
		a, b, c := w.process("a"), w.process("b"), w.process("c")
		a.acquire("x")
		taken := make(chan struct{})
		go func() { defer close(taken); b.acquire("x") }()
		time.Sleep(5900 * time.Millisecond) // the first heartbeat comes after 6 s
		k := a.acquire("y")
		<-taken
		c.acquire("y")
		if err := k.Check(0); !errors.Is(err, lock.ErrLost) {
			t.Errorf("two hold y: %v", err)
		}
	})
}

// guard:lock-final. Without this: A's machine is suspended while the answer to its acquisition is on its way. B finds the
// session lapsed and takes the name. A wakes up, reads the answer, and believes that it holds the name.
func TestAnsweredTooLate(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		sleeps := &clock.Suspendable{}
		a := w.processOn("a", sleeps)
		puts := 0
		w.faulty.SetAfter(func(_ context.Context, op faultstore.Op, _ error) {
			if op.Kind == faultstore.Put {
				if puts++; puts == 1 {
					sleeps.Suspend(time.Hour)
				}
			}
		})
		if k := a.acquire("x"); k.Check(0) != nil || k.Token().Epoch() != 2 {
			t.Errorf("token %v: %v", k.Token(), k.Check(0))
		}
	})
}

// guard:lock-rate. Without the margin: A's clock runs 5 % too slow and B's 5 % too fast. B takes A's name before A's deadline.
//
// guard:lock-sent. Without this: A's heartbeat is applied at once, and its answer takes 2.5 s. B counts from the heartbeat and
// A from the answer. A crashes, and works 2.5 s longer than B waits.
func TestSlowHeartbeat(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: faultstore.Script(faultstore.Rule{
		Kind: faultstore.Put, Prefix: "locks/session/", Fault: faultstore.Fault{ReplyDelay: 2500 * time.Millisecond},
	})}, func(w *world) {
		k := w.process("a").acquire("x")
		time.Sleep(8600 * time.Millisecond) // the heartbeat was sent after 6 s
		if held := k.Held(); held > 6*time.Second+validity-validity/10-8600*time.Millisecond {
			t.Errorf("%v are left", held)
		}
		if err := k.Check(time.Second); err != nil {
			t.Error(err)
		}
	})
}

// guard:lock-placeholder. Without this: A has held a name for a second, and has sent no heartbeat yet. B finds no object of its
// session, takes A for dead, and takes the name.
func TestNoHeartbeatYet(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k := a.acquire("x")
		go func() {
			time.Sleep(time.Minute / 2)
			if err := k.Check(0); err != nil {
				t.Errorf("a: %v", err)
			}
			a.release(k)
		}()
		b.acquire("x")
		if !errors.Is(context.Cause(k.Context()), lock.ErrReleased) {
			t.Errorf("b holds the name, and a: %v", context.Cause(k.Context()))
		}
	})
}

// guard:lock-sweep. Without the age: B deletes the object of A's session, which lives. A's next heartbeat is refused, and all
// its locks are lost.
func TestSweep(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		for i := range 10 {
			p := w.process(name(i))
			p.acquire(name(i))
			time.Sleep(10 * time.Second)
			p.st.Crash()
		}
		a := w.process("a")
		k := a.acquire("x")
		time.Sleep(25 * time.Hour)
		if n := w.objects("locks/session/"); n != 11 {
			t.Fatalf("%d sessions have an object", n)
		}
		w.process("b").acquire("y")
		time.Sleep(time.Minute)
		if n := w.objects("locks/session/"); n != 2 {
			t.Errorf("%d sessions have an object, and two live", n)
		}
		if err := k.Check(0); err != nil {
			t.Error(err)
		}
	})
}
