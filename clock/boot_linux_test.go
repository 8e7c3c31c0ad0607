package clock

import (
	"math/rand/v2"
	"testing"
	"time"
)

// machine is a kernel's clocks. It can let something happen while it is asked.
type machine struct {
	mono, slept, set time.Duration // set is by how much the time of day was changed
	step             time.Duration // how long each reading takes
	between          func()        // called once, after the kernel's next answer
	asked            int
}

func (m *machine) sample() reading {
	m.mono += m.step
	return reading{mono: m.mono, wall: m.mono + m.slept + m.set + 1e18}
}

func (m *machine) kernel() time.Duration {
	m.mono += m.step
	m.asked++
	answer := m.mono + m.slept
	if f := m.between; f != nil {
		m.between = nil
		f()
	}
	return answer
}

func (m *machine) boot() *bootTime { return newBootTime(m.sample, m.kernel) }

// The first reading after a suspend counts it, however soon it comes.
//
// guard:boot-day. The kernel's boot time counts sleep; monotonic time does not. The clock reuses the
// kernel's answer for 1 ms of monotonic time. Without this check: a leader checks its lease; the
// machine sleeps for an hour; less than 1 ms of waking time later the leader checks again; the clock
// reuses the old answer; the leader finds its lease valid, although it has expired.
func TestT27_FirstLookCountsTheSuspend(t *testing.T) {
	m := &machine{step: 50}
	b := m.boot()
	for _, nap := range []time.Duration{time.Second, time.Hour, 2 * bootSlack} {
		before := b.now()
		m.slept += nap
		if got := b.now().Sub(before); got < nap {
			t.Errorf("of a suspend of %v %v were counted", nap, got)
		}
	}
}

// Somebody sets the time of day back by exactly what was slept. The suspend is
// counted after bootFresh of waking time.
//
// guard:boot-fresh. The clock asks the kernel for the boot time, which counts sleep. It sees most sleep
// by the time of day, which then moves against monotonic time. Without this limit: the machine sleeps
// for an hour, and somebody sets the time of day back by an hour; the time of day agrees with monotonic
// time as before, so the clock sees no sleep; a leader never counts that hour, and believes that its
// lease holds.
func TestT27_HiddenSuspendIsCountedSoon(t *testing.T) {
	m := &machine{step: 50}
	b := m.boot()
	before := b.now()
	m.slept += time.Hour
	m.set -= time.Hour
	m.mono += bootFresh
	if got := b.now().Sub(before); got < time.Hour {
		t.Errorf("of a suspend of an hour %v were counted", got)
	}
}

// The machine is suspended, or the thread stopped, right after the kernel has
// answered. The next reading counts it.
//
// guard:boot-between. The clock reuses the kernel's boot time, which counts sleep, for 1 ms. Beside it
// the clock stores the time of day minus monotonic time: if that changes, the machine has slept.
// Without this check: the kernel answers; the machine sleeps for an hour; the clock stores a time of
// day that counts this hour beside an answer that does not; for 1 ms a leader finds its lease valid,
// although it has expired.
func TestT27_SuspendAfterTheAnswer(t *testing.T) {
	for name, nap := range map[string]func(*machine){
		"suspended": func(m *machine) { m.slept += time.Hour },
		"stopped":   func(m *machine) { m.mono += time.Hour },
		"both":      func(m *machine) { m.mono += time.Hour; m.slept += time.Hour; m.set -= 2 * time.Hour },
	} {
		m := &machine{step: 50}
		b := m.boot()
		m.mono += bootFresh // so that it asks
		m.between = func() { nap(m) }
		b.now()
		if got, want := b.now(), Instant(m.mono+m.slept); want.Sub(got) > bootSlack {
			t.Errorf("%s: %v behind", name, want.Sub(got))
		}
	}
}

// A slow goroutine asks the kernel and is overtaken by a quick one, whose answer is
// more exact. The slow one must not store its smaller distance.
//
// guard:boot-rising. Boot time is monotonic time plus a distance. The clock stores that distance, and
// uses it for 1 ms without asking the kernel. Without this rule: goroutine A asks the kernel, and is
// stopped for a second before it reads monotonic time, so its distance will be a second too small;
// goroutine B asks, and stores the right one; within the same millisecond A goes on, and stores its
// own; B reads the clock again, which shows almost a second before B's last reading; a lease that ended
// in that second seems to hold.
func TestNowNeverGoesBackAfterASlowAnswer(t *testing.T) {
	m := &machine{step: 50}
	b := m.boot()
	m.mono += bootFresh // so that both ask
	var quick Instant
	m.between = func() {
		m.mono += bootSlack * 9 / 10
		quick = b.now()
	}
	b.now()
	if got := b.now(); got < quick {
		t.Errorf("it went back by %v", quick.Sub(got))
	}
}

// Random events: the clock never goes back, is never ahead of the kernel, and each
// second reading is within 2 × bootSlack of it.
func TestBootTimeFollowsTheKernel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	m := &machine{}
	b := m.boot()
	last := Instant(0)
	for range 100_000 {
		m.step = time.Duration(rng.Int64N(int64(bootSlack)))
		happen := func() {
			switch rng.IntN(6) {
			case 0:
				m.slept += time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
			case 1:
				m.mono += time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
			case 2:
				m.set += time.Duration(rng.NormFloat64() * float64(time.Second))
			}
		}
		if rng.IntN(2) == 0 {
			m.between = happen
		} else {
			happen()
		}
		for again := range 2 {
			if again > 0 {
				m.between = nil
			}
			now := b.now()
			truth := Instant(m.mono + m.slept)
			behind := truth.Sub(now)
			if now < last || behind < 0 || again > 0 && behind > 2*bootSlack {
				t.Fatalf("%v after %v, %v behind the kernel", now, last, behind)
			}
			last = now
		}
	}
	if m.asked < 1000 || m.asked > 199_000 {
		t.Errorf("the kernel was asked %d times: the test has become too tame", m.asked)
	}
}

// The real clock against the real kernel.
func TestSystemIsTheKernels(t *testing.T) {
	const rounding = Instant(time.Microsecond)
	for range 100_000 {
		before := Instant(kernel())
		now := System().Now()
		after := Instant(kernel())
		if now < before-rounding-Instant(bootSlack) || now > after+rounding {
			t.Fatalf("it says %v between the kernel's %v and %v", now, before, after)
		}
	}
}

func BenchmarkNow(b *testing.B) {
	b.Run("system", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			System().Now()
		}
	})
	b.Run("kernel", func(b *testing.B) {
		for b.Loop() {
			kernel()
		}
	})
}
