package zaptoslog

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger that passes each entry to handler. The options are zap's, such as
// zap.AddCaller.
func New(handler slog.Handler, opts ...zap.Option) *zap.Logger {
	return zap.New(&core{handler: handler}, opts...)
}

// core is a zapcore.Core. It keeps the fields of With and adds them to each record. Given
// to the handler at once, a namespace among them would enclose the logger's name too.
type core struct {
	handler slog.Handler
	fields  []zapcore.Field
}

func level(l zapcore.Level) slog.Level { return slog.Level(4 * int(l)) }

// Enabled asks the handler.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), level(l))
}

// With returns a core that adds the fields to each entry.
func (c *core) With(add []zapcore.Field) zapcore.Core {
	return &core{c.handler, slices.Concat(c.fields, add)}
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
	r.AddAttrs(attrs(slices.Concat(c.fields, add))...)
	if e.Stack != "" {
		r.AddAttrs(slog.String("stacktrace", e.Stack))
	}
	return c.handler.Handle(context.Background(), r)
}

// Sync does nothing: a slog handler has no buffer to write out.
func (c *core) Sync() error { return nil }

// attrs converts fields. A namespace encloses the fields after it.
func attrs(fields []zapcore.Field) (all []slog.Attr) {
	for i, f := range fields {
		switch f.Type {
		case zapcore.NamespaceType:
			return append(all, slog.GroupAttrs(f.Key, attrs(fields[i+1:])...))
		case zapcore.ErrorType: // zap would make it text
			all = append(all, slog.Any(f.Key, f.Interface))
		default:
			values := zapcore.NewMapObjectEncoder()
			f.AddTo(values)
			all = append(all, sorted(values.Fields)...)
		}
	}
	return all
}

// sorted returns values by name, with objects as groups.
func sorted(values map[string]any) (all []slog.Attr) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		a := slog.Any(name, values[name])
		if object, ok := values[name].(map[string]any); ok {
			a = slog.GroupAttrs(name, sorted(object)...)
		}
		all = append(all, a)
	}
	return all
}
