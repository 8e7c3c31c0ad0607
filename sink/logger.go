package sink

import (
	"io"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"weak"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/fencepost/fencepost/fence"
)

// Logger returns a logger that writes what l does, through a [Queue]: beside the work, and never at the cost of it. It
// returns a silent one for nil. What this has returned it returns as it is, and loggers of the same core share one queue.
//
// A line is formatted when it is written. So fields hold values that do not change: numbers, texts, errors.
func Logger(l *zap.Logger) *zap.Logger {
	switch {
	case l == nil:
		return zap.NewNop()
	case l.Core() == zapcore.NewNopCore():
		return l
	}
	if _, ok := l.Core().(*core); ok {
		return l
	}
	return l.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return &core{c, pipeTo(c, l.Name())} }),
		zap.ErrorOutput(zapcore.AddSync(io.Discard))) // it is standard error by default, which may block
}

// pipe is the queue of a core, and of those that its With makes.
type pipe struct {
	Queue
	to     zapcore.Core
	lowest atomic.Int32 // the level that it wanted when the last line was written, and all above
}

// pipes are those in use. They keep none alive.
var pipes struct {
	sync.Mutex
	all []weak.Pointer[pipe]
}

// pipeTo returns the pipe of a core: an old one, or one under this name.
func pipeTo(c zapcore.Core, name string) *pipe {
	pipes.Lock()
	defer pipes.Unlock()
	pipes.all = slices.DeleteFunc(pipes.all, func(w weak.Pointer[pipe]) bool { return w.Value() == nil })
	for _, w := range pipes.all {
		if p := w.Value(); p != nil && same(p.to, c) {
			return p
		}
	}
	p := &pipe{to: c}
	p.lowest.Store(int32(zapcore.DebugLevel))
	p.Lost = func(lines int) error {
		// Its level is that of the worst line, or a core of errors alone would lose many and not say so.
		return write(c, zapcore.Entry{Level: max(zapcore.WarnLevel, p.said), Time: zapcore.DefaultClock.Now(), LoggerName: name,
			Message: "lines of this log were not written: its sink was blocked, or failed"}, []zapcore.Field{zap.Int("lines", lines)})
	}
	pipes.all = append(pipes.all, weak.Make(p))
	return p
}

// same reports whether two cores are one. zap's Tee is a slice, which does not compare.
func same(a, b zapcore.Core) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	if v.Type() != w.Type() {
		return false
	}
	if v.Kind() == reflect.Slice {
		return v.Pointer() == w.Pointer() && v.Len() == w.Len()
	}
	return v.Comparable() && w.Comparable() && a == b
}

// core passes entries to another core, through a pipe.
type core struct {
	to zapcore.Core
	*pipe
}

// Enabled may not ask the other core, which may lock what its own write holds. So a core that writes is taken to want what
// it wanted last, or lines that nobody wants would fill the queue of one that blocks. One that is idle is given all lines:
// it may want more than it did.
func (c *core) Enabled(l zapcore.Level) bool {
	l = max(l, zapcore.DebugLevel) // LevelOf knows of none below
	return l >= zapcore.Level(c.lowest.Load()) || !c.busy()
}

// With leaves the work to the writing goroutine: it is the other core's, so it may block or panic.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{zapcore.NewLazyWith(c.to, slices.Clone(fields)), c.pipe}
}

func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if !c.Enabled(e.Level) {
		return ce
	}
	return ce.AddCore(e, c)
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	fields = slices.Clone(fields) // the caller may go on using the array
	c.do(1, e.Level, func() error {
		c.lowest.Store(int32(zapcore.LevelOf(c.pipe.to)))
		return write(c.to, e, fields)
	})
	return nil
}

// Sync writes nothing out: nobody who logs may wait.
func (c *core) Sync() error { return nil }

// write writes an entry if the core wants it, and returns the errors of that.
func write(c zapcore.Core, e zapcore.Entry, fields []zapcore.Field) error {
	ce := c.Check(e, nil)
	if ce == nil {
		return nil
	}
	var failed failure
	ce.ErrorOutput = &failed
	ce.Write(fields...)
	return failed.err
}

// failure is where zap reports that an entry was not written.
type failure struct{ err error }

func (f *failure) Write(b []byte) (int, error) {
	f.err = io.ErrShortWrite
	return len(b), nil
}

func (f *failure) Sync() error { return nil }

// Epoch is the field of an epoch.
func Epoch(e fence.Epoch) zap.Field { return zap.Uint64("epoch", uint64(e)) }
