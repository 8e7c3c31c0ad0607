package gocronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/gocronlock"
	"github.com/fencepost/fencepost/ext/lock"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

func locker(t *testing.T, st store.Store) *lock.Locker {
	t.Helper()
	l, err := lock.New(st, "locks", &lock.Options{Clock: clock.Go()})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Three real schedulers with the same job: each run is on one machine, and goes on when that is gone.
func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memstore.New(&memstore.Options{Clock: clock.Go()})
		var runs [3]atomic.Int32
		var stop [3]func()
		for i := range runs {
			locks := locker(t, st)
			e := gocronlock.NewElector(locks, "scheduler")
			s, err := gocron.NewScheduler(gocron.WithDistributedElector(e))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func() { runs[i].Add(1) })); err != nil {
				t.Fatal(err)
			}
			s.Start()
			stop[i] = func() {
				_ = s.Shutdown()
				if err := errors.Join(e.Resign(context.Background()), locks.Close(context.Background())); err != nil {
					t.Error(err)
				}
			}
		}
		counts := func() (all int32, most int) {
			for i := range runs {
				if all += runs[i].Load(); runs[i].Load() > runs[most].Load() {
					most = i
				}
			}
			return all, most
		}
		time.Sleep(10*time.Minute + time.Second)
		all, first := counts()
		if all != 10 || runs[first].Load() != 10 {
			t.Errorf("in ten minutes %d runs, of which one machine did %d", all, runs[first].Load())
		}
		stop[first]()
		time.Sleep(10 * time.Minute)
		if all, _ := counts(); all != 20 {
			t.Errorf("in twenty minutes %d runs", all)
		}
		for i := range stop {
			if i != first {
				stop[i]()
			}
		}
	})
}

// TestStoreThatHangs: the store was away for so long that the lead is lost. A job that ends meanwhile does not wait for it, and
// the machine leads again afterwards.
func TestStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := faultstore.New(memstore.New(&memstore.Options{Clock: clock.Go()}), &faultstore.Options{Clock: clock.Go()})
		locks := locker(t, st)
		defer locks.Close(t.Context())
		e := gocronlock.NewElector(locks, "scheduler")
		if err := e.IsLeader(t.Context()); err != nil {
			t.Fatal(err)
		}
		st.SetHook(faultstore.Script(faultstore.Rule{Times: -1, Fault: faultstore.Fault{Drop: true, Hang: true}}))
		time.Sleep(lock.DefaultValidity)
		if e.Lock() != nil {
			t.Error("it leads without a store")
		}
		for range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			begin := time.Now()
			if err := e.IsLeader(ctx); err == nil || time.Since(begin) > 2*time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			cancel()
		}
		time.Sleep(time.Minute)
		st.SetHook(nil)
		for begin := time.Now(); e.IsLeader(t.Context()) != nil; time.Sleep(time.Second) {
			if time.Since(begin) > time.Minute {
				t.Fatal("nobody leads after a minute")
			}
		}
		if err := e.Resign(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLocker(t *testing.T) {
	st := memstore.New(nil)
	l, m := locker(t, st), locker(t, st)
	a, b := gocronlock.NewLocker(l, time.Hour), gocronlock.NewLocker(m, 0)
	k, err := a.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Lock(t.Context(), "job"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("two run the job: %v", err)
	}
	if err := k.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Lock(t.Context(), "job"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a machine whose clock is behind runs the job again: %v", err)
	}
	a.Close()
	next, err := b.Lock(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	b.Close()
	if err := errors.Join(l.Close(t.Context()), m.Close(t.Context())); err != nil {
		t.Error(err)
	}
}
