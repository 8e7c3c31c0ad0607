package sink

import (
	"io"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Logger returns a logger that writes what l does, through a [Queue]: beside the work, and never at the cost of it. It
// returns a silent one for nil. What this has returned it returns as it is, so packages that pass a logger on share one queue.
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
	return l.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		q := &Queue{}
		name := l.Name()
		q.Lost = func(lines int) error {
			return write(c, zapcore.Entry{Level: zapcore.WarnLevel, Time: zapcore.DefaultClock.Now(), LoggerName: name,
				Message: "lines of this log were not written: its sink was blocked, or failed"}, []zapcore.Field{zap.Int("lines", lines)})
		}
		return &core{c, q}
	}), zap.ErrorOutput(zapcore.AddSync(io.Discard))) // it is standard error by default, which may block
}

// core passes entries to another core, through a queue.
type core struct {
	to zapcore.Core
	q  *Queue
}

// Enabled leaves the decision to the other core, which may lock what its own write holds.
func (c *core) Enabled(zapcore.Level) bool { return true }

func (c *core) With(fields []zapcore.Field) zapcore.Core { return &core{c.to.With(fields), c.q} }

func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, c)
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	fields = slices.Clone(fields) // the caller may go on using the array
	c.q.Do(1, func() error { return write(c.to, e, fields) })
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
