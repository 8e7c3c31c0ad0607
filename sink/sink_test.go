package sink

import (
	"errors"
	"fmt"
	"io"
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
