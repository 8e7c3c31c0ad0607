package tuslock_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/ext/tuslock"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// These are the cases of tusd's own tests of its memorylocker and filelocker, with two instances.
func TestAsTusd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(&memstore.Options{Clock: clock.Go()})
		instance := func() handler.Lock {
			locks, err := lock.New(st, "locks", &lock.Options{Clock: clock.Go()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locks.Close(context.Background()) })
			l, err := tuslock.New(st, "locks-wanted", locks)
			if err != nil {
				t.Fatal(err)
			}
			l.Clock = clock.Go()
			k, err := l.NewLock("one")
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		first, second := instance(), instance()
		never := func() { panic("must not be called") }

		// Without contention.
		if err := first.Lock(t.Context(), never); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}

		// The holder is asked, and lets go.
		asked := make(chan struct{})
		if err := first.Lock(t.Context(), func() { close(asked) }); err != nil {
			t.Fatal(err)
		}
		go func() {
			<-asked
			if err := first.Unlock(); err != nil {
				t.Error(err)
			}
		}()
		begin := time.Now()
		if err := second.Lock(t.Context(), never); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
		time.Sleep(time.Minute) // nobody asks the second one
		if err := second.Unlock(); err != nil {
			t.Fatal(err)
		}

		// The holder is asked, and unlocks in the callback, as in tusd's tests.
		if err := first.Lock(t.Context(), func() {
			if err := first.Unlock(); err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := second.Lock(t.Context(), never); err != nil {
			t.Fatal(err)
		}
		if err := second.Unlock(); err != nil {
			t.Fatal(err)
		}

		// The holder is asked, and does not let go.
		times := 0
		if err := first.Lock(t.Context(), func() { times++ }); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := second.Lock(ctx, never); !errors.Is(err, handler.ErrLockTimeout) {
			t.Errorf("got %v, want ErrLockTimeout", err)
		}
		if err := first.Unlock(); err != nil || times != 1 {
			t.Errorf("asked %d times; %v", times, err)
		}
		// A note that comes late asks nobody, and does not stay.
		if _, err := st.Put(t.Context(), noteKey(t, "one"), []byte("1"), nil); err != nil {
			t.Fatal(err)
		}
		if err := first.Lock(t.Context(), never); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := first.Unlock(); err != nil {
			t.Fatal(err)
		}
		if n := noted(t, st); n != 0 {
			t.Errorf("%d notes are left", n)
		}
	})
}

func noteKey(t *testing.T, id string) string {
	t.Helper()
	return fmt.Sprintf("locks-wanted/%x", sha256.Sum256([]byte(id)))
}

// TestTroubledStore: the store answers nothing for a while, as long as a client of tusd waits. A holder is told that it has lost
// its lock, although it cannot look for notes, and who waits gets the lock afterwards.
func TestTroubledStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := faultstore.New(memstore.New(&memstore.Options{Clock: clock.Go()}), &faultstore.Options{Clock: clock.Go()})
		instance := func(name string) handler.Lock {
			client := st.Client(name)
			locks, err := lock.New(client, "locks", &lock.Options{Clock: clock.Go()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = locks.Close(context.Background()) })
			l, err := tuslock.New(client, "locks-wanted", locks)
			if err != nil {
				t.Fatal(err)
			}
			l.Clock = clock.Go()
			k, err := l.NewLock("one")
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		first, second := instance("first"), instance("second")
		asked := make(chan time.Time, 1)
		if err := first.Lock(t.Context(), func() { asked <- time.Now() }); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		st.SetHook(func(op faultstore.Op) faultstore.Fault {
			if op.Client == "first" || op.Client == "second" && time.Since(begin) < 12*time.Second {
				return faultstore.Fault{Drop: true, Hang: true}
			}
			return faultstore.Fault{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if err := second.Lock(ctx, func() {}); err != nil {
			t.Errorf("the store was away for 12 s: %v", err)
		}
		if took := (<-asked).Sub(begin); took > lock.DefaultValidity {
			t.Errorf("a lost lock was noticed after %v", took)
		}
		st.SetHook(nil)
		_ = first.Unlock()
		if err := second.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

func noted(t *testing.T, st *memstore.Store) (n int) {
	for _, err := range st.List(t.Context(), "locks-wanted/", nil) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}
