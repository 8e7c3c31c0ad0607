package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// decoded are the lines of a slog.JSONHandler.
func decoded(t *testing.T, b []byte) (lines []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(b) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		lines = append(lines, m)
	}
	return lines
}

type point struct{ X, Y int }

func (p point) MarshalLogObject(e zapcore.ObjectEncoder) error {
	e.AddInt("x", p.X)
	e.OpenNamespace("rest")
	e.AddInt("y", p.Y)
	return nil
}

type stringer struct{}

func (stringer) String() string { return "called" }

// What comes out is what zap's own encoder makes of the same fields, under the same
// names and in the same groups.
func TestFieldsAreThoseOfZap(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	for name, log := range map[string]func(l *zap.Logger) *zap.Logger{
		"none": func(l *zap.Logger) *zap.Logger { return l },
		"numbers": func(l *zap.Logger) *zap.Logger {
			return l.With(zap.Int("a", -1), zap.Int64("b", -2), zap.Int32("c", -3), zap.Int16("d", -4), zap.Int8("e", -5), zap.Uint("f", 6), zap.Uint64("g", 7),
				zap.Uint32("h", 8), zap.Uint16("i", 9), zap.Uint8("j", 10), zap.Uintptr("k", 11), zap.Float64("l", 1.5), zap.Float32("m", 2.5))
		},
		"other kinds": func(l *zap.Logger) *zap.Logger {
			return l.With(zap.Bool("a", true), zap.String("b", "x"), zap.ByteString("c", []byte("y")), zap.Binary("d", []byte{0, 255}), zap.Duration("e", time.Second),
				zap.Time("f", at), zap.Reflect("g", []string{"h"}), zap.Stringer("i", stringer{}), zap.Any("j", map[string]int{"k": 1}), zap.Skip())
		},
		"errors": func(l *zap.Logger) *zap.Logger {
			return l.With(zap.Error(io.EOF), zap.NamedError("other", io.ErrNoProgress), zap.Error(nil))
		},
		"objects and arrays": func(l *zap.Logger) *zap.Logger {
			return l.With(zap.Object("o", point{1, 2}), zap.Strings("s", []string{"a"}), zap.Durations("d", []time.Duration{1}))
		},
		"inline": func(l *zap.Logger) *zap.Logger {
			return l.With(zap.Inline(zapcore.ObjectMarshalerFunc(func(e zapcore.ObjectEncoder) error { e.AddInt("x", 1); return nil })), zap.Int("z", 3))
		},
		"namespaces": func(l *zap.Logger) *zap.Logger {
			return l.With(zap.Int("a", 1), zap.Namespace("in"), zap.Int("b", 2)).With(zap.Int("c", 3), zap.Namespace("side"), zap.Int("d", 4))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var want, got bytes.Buffer
			theirs := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeDuration: zapcore.NanosDurationEncoder}), zapcore.AddSync(&want), zap.DebugLevel))
			ours := FromSlog(slog.NewJSONHandler(&got, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
				if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey || a.Key == slog.MessageKey) {
					return slog.Attr{}
				}
				return a
			}}))
			for _, l := range []*zap.Logger{theirs, ours} {
				log(l).Info("m", zap.Int("last", 5))
				log(l).Info("m", zap.Namespace("n"), zap.Int("last", 5))
			}
			if w, g := decoded(t, want.Bytes()), decoded(t, got.Bytes()); len(w) != 2 || !reflect.DeepEqual(w, g) {
				t.Errorf("zap says   %v\nslog says  %v", w, g)
			}
		})
	}
}

// Loggers that are made from one do not see each other's fields.
func TestWithDoesNotShare(t *testing.T) {
	var out bytes.Buffer
	l := FromSlog(slog.NewTextHandler(&out, nil)).With(zap.Namespace("in"), zap.Int("a", 1), zap.Int("b", 2), zap.Int("c", 3))
	x, y := l.With(zap.Int("x", 1)), l.With(zap.Int("y", 1))
	x.Info("m")
	y.Info("m")
	l.Info("m")
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"in.c=3 in.x=1", "in.c=3 in.y=1", "in.c=3"} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("%q does not end in %q", lines[i], want)
		}
	}
}

func TestEntry(t *testing.T) {
	var out bytes.Buffer
	l := FromSlog(slog.NewJSONHandler(&out, &slog.HandlerOptions{AddSource: true, Level: slog.LevelInfo}), zap.AddCaller(), zap.AddStacktrace(zap.ErrorLevel), zap.WithFatalHook(zapcore.WriteThenPanic))
	l.Debug("below the handler's level")
	in := l.Named("log").Named("writer").With(zap.Namespace("in"))
	in.Info("i", zap.Int("a", 1))
	in.Warn("w")
	in.Error("e")
	in.DPanic("d")
	for _, log := range []func(string, ...zap.Field){in.Panic, in.Fatal} {
		func() {
			defer func() { _ = recover() }()
			log("p")
		}()
	}
	lines := decoded(t, out.Bytes())
	levels := []string{"INFO", "WARN", "ERROR", "ERROR+4", "ERROR+8", "ERROR+12"}
	if len(lines) != len(levels) {
		t.Fatalf("%d lines: %s", len(lines), &out)
	}
	for i, line := range lines {
		source, _ := line["source"].(map[string]any)
		stack, _ := line["stacktrace"].(string)
		if line["level"] != levels[i] || line["logger"] != "log.writer" || !strings.Contains(source["function"].(string), "TestEntry") || strings.Contains(stack, "TestEntry") != (i >= 2) {
			t.Errorf("%d: %v", i, line)
		}
	}
	if source := lines[0]["source"].(map[string]any); !strings.HasSuffix(source["file"].(string), "slog_test.go") {
		t.Errorf("source %v", source)
	}
	if at, err := time.Parse(time.RFC3339Nano, lines[0]["time"].(string)); err != nil || time.Since(at) > time.Hour {
		t.Errorf("time %v, %v", at, err)
	}
}

// fails is a handler whose output is broken.
type fails struct{ slog.Handler }

func (fails) Handle(_ context.Context, r slog.Record) (err error) {
	r.Attrs(func(a slog.Attr) bool {
		err, _ = a.Value.Any().(error)
		return true
	})
	return err
}

// An error arrives as what it is, and the handler's own is passed on.
func TestErrors(t *testing.T) {
	c := FromSlog(fails{slog.DiscardHandler}).Core()
	if err := c.Write(zapcore.Entry{}, []zapcore.Field{zap.Error(io.EOF)}); !errors.Is(err, io.EOF) {
		t.Errorf("Write says %v", err)
	}
	if err := c.Sync(); err != nil {
		t.Error(err)
	}
}
