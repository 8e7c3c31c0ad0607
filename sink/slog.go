package sink

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// FromSlog returns a logger for the option Logger of all packages, which passes each entry to a handler of
// log/slog. The options are zap's, such as zap.AddCaller. (The package go.uber.org/zap/exp/zapslog goes the other
// way.)
//
//   - Levels: zap's Debug, Info, Warn and Error become slog's levels of these names. DPanic, Panic and
//     Fatal become 12, 16 and 20, which slog prints as ERROR+4, ERROR+8 and ERROR+12. The handler
//     decides which levels are enabled.
//   - Fields become attributes of the matching kind. Durations and times stay durations and times. Errors
//     stay errors, so a handler can test them with errors.As. Namespaces and objects become groups.
//   - The logger's name becomes the attribute "logger", and a stack trace "stacktrace", outside of all
//     namespaces. The caller becomes the record's source if the logger has the option zap.AddCaller.
func FromSlog(handler slog.Handler, opts ...zap.Option) *zap.Logger {
	return zap.New(&slogCore{handler: handler}, opts...)
}

// Warnings is the logger of a program that has set none: warnings and errors go to slog.Default.
func Warnings() *zap.Logger {
	return FromSlog(slog.Default().Handler(), zap.ErrorOutput(zapcore.AddSync(io.Discard)), zap.IncreaseLevel(zap.WarnLevel))
}

// slogCore is a zapcore.Core. It keeps the fields of With and adds them to each record. Given
// to the handler at once, a namespace among them would enclose the logger's name too.
type slogCore struct {
	handler slog.Handler
	fields  []zapcore.Field
}

func slogLevel(l zapcore.Level) slog.Level { return slog.Level(4 * int(l)) }

// Enabled asks the handler.
func (c *slogCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l))
}

// With returns a core that adds the fields to each entry.
func (c *slogCore) With(add []zapcore.Field) zapcore.Core {
	return &slogCore{c.handler, slices.Concat(c.fields, add)}
}

// Check adds the core to an entry that is enabled.
func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write passes an entry to the handler and returns the handler's error.
func (c *slogCore) Write(e zapcore.Entry, add []zapcore.Field) error {
	var pc uintptr
	if e.Caller.Defined {
		// zap has the address of the call, slog wants that of the return, one byte on
		// at least.
		pc = e.Caller.PC + 1
	}
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, pc)
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
func (c *slogCore) Sync() error { return nil }

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
