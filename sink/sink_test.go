package sink

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// door is a sink that blocks while it is shut, fails, or panics.
type door struct {
	mu    sync.Mutex
	shut  chan struct{} // closed when it opens
	fails func() error
	lines []string
}

func (d *door) write(line string) error {
	d.mu.Lock()
	shut, fails := d.shut, d.fails
	d.mu.Unlock()
	if shut != nil {
		<-shut
	}
	if fails != nil {
		if err := fails(); err != nil {
			return err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
	return nil
}

func (d *door) set(fails func() error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = fails
}

func (d *door) Write(b []byte) (int, error) { return len(b), d.write(strings.TrimSpace(string(b))) }
func (d *door) Sync() error                 { return nil }

func (d *door) queue() *Queue {
	return &Queue{Lost: func(lines int) error { return d.write(fmt.Sprint(lines, " lost")) }}
}

func (d *door) logger() *zap.Logger {
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", NameKey: "n"}), d, zap.InfoLevel))
}

// A sink that blocks costs its callers a moment once. What it has no room for it counts, and says when it is open again.
//
// guard:log-beside. Without this: a leader's standard error is a pipe that nobody reads; it writes a
// line and blocks; it does no work, and its heartbeats or its signal handler go on in another
// goroutine, so no candidate takes over.
func TestBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{shut: make(chan struct{})}
		q := d.queue()
		begin := time.Now()
		for n := range most + 8 { // the first one is taken out of the queue
			q.Do(1, func() error { return d.write(fmt.Sprint(n)) })
		}
		q.Wait(time.Second)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("the callers waited for %v", took)
		}
		close(d.shut)
		q.Wait(time.Minute)
		if got := d.lines[len(d.lines)-2:]; len(d.lines) != most+2 || got[0] != fmt.Sprint(most) || got[1] != "7 lost" || d.lines[0] != "0" {
			t.Errorf("%d lines, the last of them %q", len(d.lines), got)
		}
		time.Sleep(span)
		q.Do(1, func() error { return d.write("after") })
		if got := d.lines[len(d.lines)-1]; got != "after" {
			t.Errorf("the last line is %q when a call returns", got)
		}
	})
}

// A line that is written at once is written when the call returns, so it stands before what the caller does next.
func TestInOrder(t *testing.T) {
	d := &door{}
	q := d.queue()
	var want []string
	for n := range 100 {
		want = append(want, fmt.Sprint(n))
		q.Do(1, func() error { return d.write(fmt.Sprint(n)) })
		q.Wait(time.Minute)
	}
	if !slices.Equal(d.lines, want) {
		t.Error(d.lines)
	}
}

// A full disk and a sink that panics lose lines, which are counted, and do no other harm.
func TestFailing(t *testing.T) {
	d := &door{}
	q := d.queue()
	for _, fails := range []func() error{func() error { return io.ErrShortWrite }, func() error { panic("sink") }, nil} {
		d.set(fails)
		q.Do(3, func() error { return d.write("line") })
		q.Wait(time.Minute)
	}
	if !slices.Equal(d.lines, []string{"line", "6 lost"}) {
		t.Error(d.lines)
	}
}

// A write that ends its goroutine, as a test's FailNow does, loses its line and no other.
func TestGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{shut: make(chan struct{}), fails: func() error { runtime.Goexit(); return nil }}
		q := d.queue()
		q.Do(1, func() error { return d.write("one") })
		q.Do(1, func() error { return d.write("two") })
		q.Do(1, func() error { d.set(nil); return d.write("three") })
		close(d.shut)
		q.Wait(time.Minute)
		d.set(func() error { runtime.Goexit(); return nil })
		begin := time.Now()
		q.Do(1, func() error { return d.write("four") })
		q.Wait(time.Minute)
		if took := time.Since(begin); took > 0 {
			t.Errorf("a call whose line is lost at once waits for %v", took)
		}
		d.set(nil)
		q.Do(1, func() error { return d.write("five") })
		q.Wait(time.Minute)
		if !slices.Equal(d.lines, []string{"three", "2 lost", "five", "1 lost"}) {
			t.Error(d.lines)
		}
	})
}

// A slow sink does not make the work slow: one that writes each line in time, nor one that never does.
func TestSlow(t *testing.T) {
	for _, slow := range []time.Duration{90 * time.Millisecond, 150 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &door{fails: func() error { time.Sleep(slow); return nil }}
				q := d.queue()
				var waited time.Duration
				for n := range 100 {
					begin := time.Now()
					q.Do(1, func() error { return d.write(fmt.Sprint(n)) })
					waited += time.Since(begin)
					time.Sleep(200 * time.Millisecond) // it is idle again
				}
				synctest.Wait()
				if len(d.lines) != 100 || waited == 0 || waited > 3*patience { // 100 lines take 20 s, so 3 spans have begun
					t.Errorf("%d lines, waited for %v", len(d.lines), waited)
				}
			})
		})
	}
}

// The logger says what the given one does: no more, and under the same names.
func TestLogger(t *testing.T) {
	core, seen := observer.New(zap.InfoLevel)
	l := Logger(zap.New(core, zap.AddCaller(), zap.AddStacktrace(zap.ErrorLevel)).Named("a"))
	if Logger(l.Named("b")).Core() != l.Core() {
		t.Error("one logger has two queues")
	}
	b := l.Named("b").With(zap.Int("x", 1))
	b.Debug("not wanted")
	b.Info("wanted", zap.Error(io.EOF))
	b.Error("bad")
	got := seen.All()
	if len(got) != 2 {
		t.Fatal(got)
	}
	if e := got[0]; e.LoggerName != "a.b" || e.Message != "wanted" || !strings.HasSuffix(e.Caller.File, "sink_test.go") || e.Stack != "" {
		t.Errorf("%+v", e)
	}
	if err, _ := got[0].Context[1].Interface.(error); got[0].ContextMap()["x"] != int64(1) || !errors.Is(err, io.EOF) {
		t.Errorf("%v", got[0].Context)
	}
	if got[1].Stack == "" {
		t.Error("no stack")
	}
	if nop := zap.NewNop(); Logger(nop) != nop || Logger(nil).Core() != nop.Core() {
		t.Error("a silent logger costs something")
	}
}

// A logger whose sink blocks, fails or panics says later how many lines are lost.
func TestLoggerSaysWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{shut: make(chan struct{})}
		l := Logger(d.logger().Named("a"))
		for range most + 4 {
			l.Info("line")
		}
		close(d.shut)
		synctest.Wait()
		for _, fails := range []func() error{func() error { return io.ErrShortWrite }, func() error { panic("sink") }} {
			d.set(fails)
			l.Info("line")
			synctest.Wait()
		}
		d.set(nil)
		l.Info("line")
		synctest.Wait()
		var lost []string
		for _, line := range d.lines {
			if !strings.HasPrefix(line, "a\tline") || strings.Contains(line, "lines of this log") {
				lost = append(lost, line)
			}
		}
		const says = "a\tlines of this log were not written: its sink was blocked, or failed\t"
		if want := []string{says + `{"lines": 3}`, says + `{"lines": 2}`}; !slices.Equal(lost, want) {
			t.Errorf("%q, want %q", lost, want)
		}
	})
}

// A handler may hold a lock while it writes that it also needs to say which levels it wants.
func TestLevelBehindALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		inner, seen := observer.New(zap.InfoLevel)
		turn := make(chan struct{}, 1)
		l := Logger(zap.New(&locked{inner, turn, open}))
		l.Info("one")
		l.Info("two")
		close(open)
		synctest.Wait()
		if n := seen.Len(); n != 2 {
			t.Errorf("%d lines", n)
		}
	})
}

// While a sink blocks, lines that nobody wants take no room. Those that somebody would have wanted are said to be lost, at
// a level that is wanted.
func TestUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{shut: make(chan struct{})}
		level := zap.NewAtomicLevelAt(zap.ErrorLevel)
		l := Logger(zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "m", LevelKey: "l",
			EncodeLevel: zapcore.LowercaseLevelEncoder}), d, level)))
		l.Error("one")
		for range most + 8 {
			l.Info("not wanted")
		}
		l.Error("two")
		close(d.shut)
		synctest.Wait()
		if want := []string{"error\tone", "error\ttwo"}; !slices.Equal(d.lines, want) {
			t.Errorf("%q, want %q", d.lines, want)
		}
		d.shut = make(chan struct{})
		l.Error("line")
		synctest.Wait() // it is being written, and takes no room of the others
		for range most + 2 {
			l.Error("line")
		}
		close(d.shut)
		synctest.Wait()
		const want = "error\tlines of this log were not written: its sink was blocked, or failed\t{\"lines\": 2}"
		if got := d.lines[len(d.lines)-1]; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		level.SetLevel(zap.DebugLevel)
		l.Debug("wanted now")
		synctest.Wait()
		if got := d.lines[len(d.lines)-1]; got != "debug\twanted now" {
			t.Errorf("after the level has changed: %q", got)
		}
	})
}

// All loggers of one core have one queue, also if the core does not compare. It lasts no longer than they do.
func TestOneQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &door{shut: make(chan struct{})}
		raw := d.logger()
		for name, raw := range map[string]*zap.Logger{"pointer": raw, "tee": zap.New(zapcore.NewTee(raw.Core(), d.logger().Core()))} {
			before, begin := runtime.NumGoroutine(), time.Now()
			for range 50 {
				Logger(raw).Named("x").Info("line")
			}
			if n, took := runtime.NumGoroutine()-before, time.Since(begin); n > 1 || took > patience {
				t.Errorf("%s: %d goroutines, waited for %v", name, n, took)
			}
		}
		if Logger(raw).Core().(*core).pipe == Logger(d.logger()).Core().(*core).pipe {
			t.Error("two cores share a queue")
		}
		for range 2 { // one that nothing can tell from another one has its own
			Logger(zap.New(uncomparable{raw.Core(), nil})).Info("line")
		}
		close(d.shut)
		synctest.Wait()
		if len(d.lines) != 50+2*50+2 {
			t.Errorf("%d lines", len(d.lines))
		}
	})
	for range 100 {
		Logger((&door{}).logger()).Info("line")
	}
	runtime.GC()
	_ = Logger((&door{}).logger())
	pipes.Lock()
	defer pipes.Unlock()
	if n := len(pipes.all); n > 50 {
		t.Errorf("%d queues are kept", n)
	}
}

type uncomparable struct {
	zapcore.Core
	_ []int
}

// The caller of a logger never calls With of the core below, which may block or panic. The fields are those given.
func TestWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		inner, seen := observer.New(zap.InfoLevel)
		l := Logger(zap.New(&withs{inner, func() { <-open }}))
		fields := []zap.Field{zap.Int("x", 1)}
		x := l.With(fields...)
		y := x.With(zap.Int("y", 2))
		fields[0] = zap.Int("other", 1)
		begin := time.Now()
		y.Info("line", zap.Int("z", 3))
		if took := time.Since(begin); took > patience {
			t.Errorf("waited for %v", took)
		}
		close(open)
		synctest.Wait()
		x.Info("line")
		Logger(zap.New(&withs{inner, func() { panic("with") }})).With(zap.Int("x", 1)).Info("lost")
		synctest.Wait()
		got := seen.All()
		if len(got) != 2 || len(got[0].Context) != 3 || len(got[1].Context) != 1 ||
			!maps.Equal(got[0].ContextMap(), map[string]any{"x": int64(1), "y": int64(2), "z": int64(3)}) {
			t.Error(got)
		}
	})
}

// withs is a core whose With does something else first.
type withs struct {
	zapcore.Core
	first func()
}

func (w *withs) With(fields []zapcore.Field) zapcore.Core {
	w.first()
	return &withs{w.Core.With(fields), w.first}
}

func (w *withs) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return w.Core.Check(e, ce)
}

type locked struct {
	zapcore.Core
	turn chan struct{}
	open <-chan struct{}
}

func (c *locked) Enabled(l zapcore.Level) bool {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return c.Core.Enabled(l)
}

func (c *locked) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *locked) Write(e zapcore.Entry, fields []zapcore.Field) error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	<-c.open
	return c.Core.Write(e, fields)
}
