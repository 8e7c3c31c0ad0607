package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/store/faultstore"
)

func TestRequests(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		for _, c := range []struct {
			what string
			most int
			time time.Duration
		}{{"a new name", 5, 145 * time.Millisecond}, {"a name that exists", 3, 90 * time.Millisecond}} {
			p := w.process(c.what) // each is a process that knows nothing
			w.requests()
			begin := time.Now()
			p.cycle("invoices")
			if n, took := w.requests(), time.Since(begin); n > c.most || took > c.time {
				t.Errorf("%s: %d requests in %v, want at most %d in %v", c.what, n, took, c.most, c.time)
			}
			p.close()
			if n := w.requests(); n != 0 {
				t.Errorf("%s: closing makes %d requests", c.what, n)
			}
		}
	})
}

// guard:lock-token. Without the bucket's token: A holds token 1 and is frozen; the name is released, forgotten, and given
// to B with token 1 again. A wakes up, and the place that compares tokens lets both write.
func TestTokensRise(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		last := a.cycle("invoices")
		other := sameBucket(t, "invoices")
		for i := range 10 {
			a.cycle(other)
			if next := b.cycle("invoices"); next <= last {
				t.Fatalf("round %d: token %d after %d", i, next, last)
			} else {
				last = next
			}
		}
		if n, size := w.mem.Len(); n != 1 || size > 300 {
			t.Errorf("%d objects of %d bytes are left of two names", n, size)
		}
	})
}

func TestHeld(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k := a.acquire("invoices")
		var held *lock.HeldError
		if _, err := b.TryAcquire(w.Context(), "invoices"); !errors.As(err, &held) || !errors.Is(err, lock.ErrHeld) || held.Holder != "a" || held.Token != k.Token() {
			t.Fatalf("TryAcquire: %v", err)
		}
		if err := k.Check(time.Second); err != nil || k.Context().Err() != nil {
			t.Fatal(err)
		}
		if err := k.Check(validity); !errors.Is(err, lock.ErrShort) {
			t.Errorf("Check of a whole validity: %v", err)
		}
		ctx, cancel := context.WithTimeout(w.Context(), time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, "invoices"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, lock.ErrHeld) {
			t.Errorf("Acquire whose context ends: %v", err)
		}
		a.release(k)
		if err := k.Check(0); !errors.Is(err, lock.ErrReleased) || !errors.Is(context.Cause(k.Context()), lock.ErrReleased) || k.Held() != 0 {
			t.Errorf("Check after the release: %v", err)
		}
		if err := k.Release(w.Context()); err != nil {
			t.Errorf("a second release: %v", err)
		}
		n, err := b.TryAcquire(w.Context(), "invoices")
		if err != nil || n.Token().Epoch() <= k.Token().Epoch() {
			t.Errorf("TryAcquire of a free name: %v", err)
		}
	})
}

// Who waits in vain is told who held the name last, also if others were faster in the end.
func TestHeldInVain(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		k, other := a.acquire("invoices"), sameBucket(t, "invoices")
		ctx, cancel := context.WithTimeout(w.Context(), 30*time.Second)
		defer cancel()
		failed := make(chan error)
		go func() {
			_, err := b.Acquire(ctx, "invoices")
			failed <- err
		}()
		time.Sleep(time.Second)
		w.faulty.SetBefore(func(_ context.Context, op faultstore.Op) {
			if op.Kind == faultstore.Put && op.Client == "b" && op.Key == lock.BucketKey("invoices") {
				a.cycle(other)
			}
		})
		a.release(k)
		var held *lock.HeldError
		if err := <-failed; !errors.As(err, &held) || held.Holder != "a" || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire in vain: %v", err)
		}
	})
}

// Closing ends the wait for a name.
func TestCloseEndsWaits(t *testing.T) {
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		a, b := w.process("a"), w.process("b")
		a.acquire("invoices")
		failed := make(chan error)
		go func() {
			_, err := b.Acquire(w.Context(), "invoices")
			failed <- err
		}()
		time.Sleep(time.Second)
		b.close()
		if err := <-failed; !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
	})
}

// One process holds 10,000 names for an hour.
func TestManyNames(t *testing.T) {
	const names = 10_000
	inWorld(t, faultstore.Options{Hook: slow}, func(w *world) {
		p := w.process("p")
		locks := make(chan *lock.Lock, names)
		for n := range 50 {
			go func() {
				for i := n; i < names; i += 50 {
					k, err := p.Acquire(w.Context(), name(i))
					if err != nil {
						t.Error(err)
					}
					locks <- k
				}
			}()
		}
		var all []*lock.Lock
		for range names {
			all = append(all, <-locks)
		}
		time.Sleep(validity) // the first heartbeat reads all that is held
		w.requests()
		time.Sleep(time.Hour)
		counts := w.faulty.Counts()
		if puts, others := counts.Of(faultstore.Put, ""), counts.Of("", "")-counts.Of(faultstore.Put, ""); puts > 600 || others > 0 {
			t.Errorf("%d PUTs and %d other requests in an hour, want at most 600 and none", puts, others)
		}
		for _, k := range all {
			if err := k.Check(time.Second); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A process that holds nothing any more costs nothing, and leaves nothing but buckets.
func TestIdle(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		p := w.process("p")
		k := p.acquire("invoices")
		time.Sleep(time.Minute)
		if n := w.objects("locks/session/"); n != 1 {
			t.Fatalf("%d sessions have an object", n)
		}
		p.release(k)
		time.Sleep(validity)
		w.requests()
		time.Sleep(time.Hour)
		if n := w.requests(); n != 0 {
			t.Errorf("%d requests in an idle hour", n)
		}
		if n := w.objects("locks/session/"); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

func TestClose(t *testing.T) {
	inWorld(t, faultstore.Options{}, func(w *world) {
		p := w.process("p")
		k := p.acquire("invoices")
		p.close()
		if cause := context.Cause(k.Context()); !errors.Is(cause, lock.ErrClosed) || !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the context's cause is %v", cause)
		}
		if _, err := p.Acquire(w.Context(), "x"); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("Acquire: %v", err)
		}
		p.close()
		synctest.Wait()
	})
}
