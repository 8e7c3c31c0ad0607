package tuslock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/ext/tuslock"
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
		if n := noted(t, st); n != 0 {
			t.Errorf("%d notes are left", n)
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
