package clock_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/fencepost/fencepost/clock"
)

var clocks = map[string]clock.Clock{"system": clock.System(), "go": clock.Go(), "suspendable": new(clock.Suspendable)}

func TestNowNeverGoesBack(t *testing.T) {
	for name, c := range clocks {
		last := c.Now()
		for range 10_000 {
			now := c.Now()
			if now < last {
				t.Fatalf("%s: went back by %v", name, last.Sub(now))
			}
			last = now
		}
	}
}

// All clocks advance alike while the machine is awake.
func TestNowAdvances(t *testing.T) {
	for name, c := range clocks {
		before, start := c.Now(), time.Now()
		time.Sleep(20 * time.Millisecond)
		after := c.Now()
		least := 20 * time.Millisecond
		if got := after.Sub(before); got < least || got > time.Since(start)+least {
			t.Errorf("%s: 20 ms of sleep were %v", name, got)
		}
	}
}

func TestInstant(t *testing.T) {
	var origin clock.Instant
	if got := origin.Add(3 * time.Second).Sub(origin.Add(time.Second)); got != 2*time.Second {
		t.Errorf("the difference is %v", got)
	}
}

func TestAfterFunc(t *testing.T) {
	for name, c := range clocks {
		for _, d := range []time.Duration{-time.Second, 0, 10 * time.Millisecond} {
			start := c.Now()
			at := make(chan clock.Instant)
			timer := c.AfterFunc(d, func() { at <- c.Now() })
			if got := (<-at).Sub(start); got < d {
				t.Errorf("%s: called %v after it was asked for in %v", name, got, d)
			}
			if timer.Stop() {
				t.Errorf("%s: Stop says that it prevented what has happened", name)
			}
		}
	}
}

func TestStop(t *testing.T) {
	for name, c := range clocks {
		called := make(chan struct{}, 1)
		timer := c.AfterFunc(5*time.Millisecond, func() { called <- struct{}{} })
		if timer.Stop() {
			time.Sleep(20 * time.Millisecond)
			if len(called) != 0 {
				t.Errorf("%s: called after it was stopped", name)
			}
		}
		if timer.Stop() {
			t.Errorf("%s: stopped twice", name)
		}
	}
}

// Stop and the call race: exactly one of them wins.
func TestStopRacesTheCall(t *testing.T) {
	for name, c := range clocks {
		for i := range 500 {
			var calls atomic.Int64
			done := make(chan struct{})
			timer := c.AfterFunc(time.Duration(i)*time.Microsecond/10, func() { calls.Add(1); close(done) })
			for range i % 7 {
				runtime.Gosched()
			}
			stopped := timer.Stop()
			if !stopped {
				<-done
			}
			if stopped == (calls.Load() == 1) {
				t.Fatalf("%s: stopped %v, called %d times", name, stopped, calls.Load())
			}
		}
	}
}

// A stopped timer does not keep its function alive. A server bounds thousands of
// requests a second with timers that are due much later.
func TestStoppedTimerIsNotPinned(t *testing.T) {
	for name, c := range clocks {
		held := weakly(c)
		collected := false
		// Less than the second after which a timer that is not stopped checks anyway.
		for start := time.Now(); !collected && time.Since(start) < 500*time.Millisecond; {
			runtime.GC()
			collected = held.Value() == nil
		}
		if !collected {
			t.Errorf("%s: a stopped timer still holds its function", name)
		}
	}
}

//go:noinline
func weakly(c clock.Clock) weak.Pointer[[1 << 16]byte] {
	big := new([1 << 16]byte)
	c.AfterFunc(time.Hour, func() { big[0]++ }).Stop()
	return weak.Make(big)
}

func TestSleep(t *testing.T) {
	for name, c := range clocks {
		start := c.Now()
		if err := clock.Sleep(t.Context(), c, 10*time.Millisecond); err != nil || c.Now().Sub(start) < 10*time.Millisecond {
			t.Errorf("%s: %v after %v", name, err, c.Now().Sub(start))
		}
		if err := clock.Sleep(t.Context(), c, -1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		c.AfterFunc(time.Millisecond, func() { cancel(cause) })
		if err := clock.Sleep(ctx, c, time.Hour); !errors.Is(err, cause) {
			t.Errorf("%s: %v", name, err)
		}
		if err := clock.Sleep(ctx, c, 0); !errors.Is(err, cause) {
			t.Errorf("%s: a context that has ended: %v", name, err)
		}
	}
}

func TestWithTimeout(t *testing.T) {
	late := errors.New("too late")
	for name, c := range clocks {
		ctx, cancel := clock.WithTimeout(t.Context(), c, time.Millisecond, late)
		<-ctx.Done()
		if got := context.Cause(ctx); !errors.Is(got, late) {
			t.Errorf("%s: ended because %v", name, got)
		}
		cancel()
		ctx, cancel = clock.WithTimeout(t.Context(), c, time.Hour, late)
		cancel()
		cancel()
		if got := context.Cause(ctx); !errors.Is(got, context.Canceled) {
			t.Errorf("%s: cancelled, and the cause is %v", name, got)
		}
		parent, end := context.WithCancelCause(t.Context())
		ctx, cancel = clock.WithTimeout(parent, c, time.Hour, late)
		theirs := errors.New("theirs")
		end(theirs)
		if got := context.Cause(ctx); !errors.Is(got, theirs) {
			t.Errorf("%s: the parent ended, and the cause is %v", name, got)
		}
		cancel()
	}
}

func TestOr(t *testing.T) {
	if clock.Or(nil) != clock.System() || clock.Or(clock.Go()) != clock.Go() {
		t.Error("Or does not choose")
	}
}

// Go is virtual in a bubble: hours pass at once, to the nanosecond.
func TestGoInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, wall := clock.Go().Now(), clock.Go().Wall()
		if err := clock.Sleep(t.Context(), clock.Go(), 3*time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := clock.Go().Now().Sub(start); got != 3*time.Hour {
			t.Errorf("slept for %v", got)
		}
		if got := clock.Go().Wall().Sub(wall); got != 3*time.Hour {
			t.Errorf("the wall clock advanced by %v", got)
		}
	})
}

// A timer whose deadline passes in a suspend fires within a second of waking. It
// does not first wait for all the time that was left when the machine fell asleep.
func TestT27_TimerNoticesSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(clock.Suspendable)
		start := time.Now()
		var fired atomic.Int64
		c.AfterFunc(time.Hour, func() { fired.Store(int64(time.Since(start))) })
		time.Sleep(10*time.Second + time.Millisecond)
		c.Suspend(30 * time.Minute)
		time.Sleep(10 * time.Second)
		if awake := time.Duration(fired.Load()); awake != 0 {
			t.Fatalf("fired after %v, before its deadline", awake)
		}
		c.Suspend(30 * time.Minute)
		time.Sleep(time.Second)
		if awake := time.Duration(fired.Load()); awake == 0 || awake > 21*time.Second+time.Millisecond {
			t.Errorf("fired after %v awake", awake)
		}
	})
}

// Without suspends a timer is exact, also one that outlasts many checks.
func TestTimerIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(clock.Suspendable)
		for _, d := range []time.Duration{time.Millisecond, time.Second, 2500 * time.Millisecond, time.Hour} {
			start := c.Now()
			if err := clock.Sleep(t.Context(), c, d); err != nil || c.Now().Sub(start) != d {
				t.Errorf("%v took %v, %v", d, c.Now().Sub(start), err)
			}
		}
		stopped := c.AfterFunc(10*time.Second, func() { t.Error("called although stopped") })
		time.Sleep(5 * time.Second)
		if !stopped.Stop() {
			t.Error("Stop says that it came too late")
		}
		time.Sleep(time.Minute)
	})
}
