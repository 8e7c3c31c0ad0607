package zaptoslog

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger that passes each entry to handler. The options are zap's, such as
// zap.AddCaller.
func New(handler slog.Handler, opts ...zap.Option) *zap.Logger {
	return zap.New(&core{handler: handler}, opts...)
}

// core is a zapcore.Core. The handler has the fields that With added before the first
// namespace. The later ones are added to each record, because the logger's name, known
// only then, must stay outside of the namespace.
type core struct {
	handler slog.Handler
	inside  fields
}

func level(l zapcore.Level) slog.Level { return slog.Level(4 * int(l)) }

// Enabled asks the handler.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

// With returns a core that adds the fields to each entry.
func (c *core) With(add []zapcore.Field) zapcore.Core {
	all := c.inside.with(add)
	v := &core{handler: c.handler, inside: all}
	if top := all.groups[0].attrs; len(top) > 0 {
		v.handler = c.handler.WithAttrs(top)
		all.groups[0].attrs = nil
	}
	return v
}

// Check adds the core to an entry that is enabled.
func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write passes an entry to the handler and returns the handler's error.
func (c *core) Write(e zapcore.Entry, add []zapcore.Field) error {
	var pc uintptr
	if e.Caller.Defined {
		// zap has the address of the call, slog wants that of the return, one byte on
		// at least.
		pc = e.Caller.PC + 1
	}
	r := slog.NewRecord(e.Time, level(e.Level), e.Message, pc)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	all := c.inside.with(add)
	r.AddAttrs(all.attrs()...)
	if e.Stack != "" {
		r.AddAttrs(slog.String("stacktrace", e.Stack))
	}
	return c.handler.Handle(context.Background(), r)
}

// Sync does nothing: a slog handler has no buffer to write out.
func (c *core) Sync() error { return nil }
