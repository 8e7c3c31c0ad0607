package zaptoslog

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap/zapcore"
)

// fields collects attributes as a zapcore.ObjectEncoder. Each namespace opens a group
// inside the one before.
type fields struct{ groups []group }

type group struct {
	name  string // empty for the first
	attrs []slog.Attr
}

// with returns a copy with more fields.
func (f fields) with(add []zapcore.Field) fields {
	v := fields{groups: slices.Clone(f.groups)}
	if len(v.groups) == 0 {
		v.groups = make([]group, 1)
	}
	last := &v.groups[len(v.groups)-1]
	last.attrs = slices.Clip(last.attrs) // the other copies share it
	for _, field := range add {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			v.add(slog.Any(field.Key, err)) // zap would make it text
			continue
		}
		field.AddTo(&v)
	}
	return v
}

// attrs returns the attributes with each group inside the one before.
func (f *fields) attrs() []slog.Attr {
	var inner []slog.Attr
	for i, g := range slices.Backward(f.groups) {
		inner = append(slices.Clip(g.attrs), inner...)
		if i > 0 {
			inner = []slog.Attr{slog.GroupAttrs(g.name, inner...)}
		}
	}
	return inner
}

func (f *fields) add(a slog.Attr) {
	last := &f.groups[len(f.groups)-1]
	last.attrs = append(last.attrs, a)
}

func (f *fields) OpenNamespace(key string) { f.groups = append(f.groups, group{name: key}) }

func (f *fields) AddObject(key string, m zapcore.ObjectMarshaler) error {
	in := fields{groups: make([]group, 1)}
	err := m.MarshalLogObject(&in)
	f.add(slog.GroupAttrs(key, in.attrs()...))
	return err
}

func (f *fields) AddArray(key string, m zapcore.ArrayMarshaler) error {
	in := zapcore.NewMapObjectEncoder() // zap's collector of values
	err := in.AddArray(key, m)
	f.add(slog.Any(key, in.Fields[key]))
	return err
}

func (f *fields) AddReflected(key string, v any) error {
	f.add(slog.Any(key, v))
	return nil
}

func (f *fields) AddBinary(key string, v []byte)     { f.add(slog.Any(key, v)) }
func (f *fields) AddByteString(key string, v []byte) { f.add(slog.String(key, string(v))) }
func (f *fields) AddBool(key string, v bool)         { f.add(slog.Bool(key, v)) }
func (f *fields) AddComplex128(key string, v complex128) {
	f.AddString(key, complexText(v, 128))
}
func (f *fields) AddComplex64(key string, v complex64) {
	f.AddString(key, complexText(complex128(v), 64))
}
func (f *fields) AddDuration(key string, v time.Duration) { f.add(slog.Duration(key, v)) }
func (f *fields) AddFloat64(key string, v float64)        { f.add(slog.Float64(key, v)) }
func (f *fields) AddFloat32(key string, v float32)        { f.add(slog.Float64(key, float64(v))) }
func (f *fields) AddInt(key string, v int)                { f.add(slog.Int(key, v)) }
func (f *fields) AddInt64(key string, v int64)            { f.add(slog.Int64(key, v)) }
func (f *fields) AddInt32(key string, v int32)            { f.add(slog.Int64(key, int64(v))) }
func (f *fields) AddInt16(key string, v int16)            { f.add(slog.Int64(key, int64(v))) }
func (f *fields) AddInt8(key string, v int8)              { f.add(slog.Int64(key, int64(v))) }
func (f *fields) AddString(key, v string)                 { f.add(slog.String(key, v)) }
func (f *fields) AddTime(key string, v time.Time)         { f.add(slog.Time(key, v)) }
func (f *fields) AddUint(key string, v uint)              { f.add(slog.Uint64(key, uint64(v))) }
func (f *fields) AddUint64(key string, v uint64)          { f.add(slog.Uint64(key, v)) }
func (f *fields) AddUint32(key string, v uint32)          { f.add(slog.Uint64(key, uint64(v))) }
func (f *fields) AddUint16(key string, v uint16)          { f.add(slog.Uint64(key, uint64(v))) }
func (f *fields) AddUint8(key string, v uint8)            { f.add(slog.Uint64(key, uint64(v))) }
func (f *fields) AddUintptr(key string, v uintptr)        { f.add(slog.Uint64(key, uint64(v))) }

// complexText writes a complex number as zap does: encoding/json knows none.
func complexText(v complex128, bits int) string {
	return strings.Trim(strconv.FormatComplex(v, 'g', -1, bits), "()")
}
