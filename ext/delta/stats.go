package delta

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxStatColumns is of how many columns Delta keeps statistics, and maxStatText how many
	// bytes of a text.
	maxStatColumns = 32
	maxStatText    = 64
	// maxStats is how many bytes the statistics of a file take. Those that take more are left out.
	maxStats = 64 << 10
)

// stats is the document of a file's statistics.
type stats struct {
	Records int64          `json:"numRecords"`
	Min     map[string]any `json:"minValues,omitempty"`
	Max     map[string]any `json:"maxValues,omitempty"`
	Nulls   map[string]any `json:"nullCount,omitempty"`
}

// statsOf takes the statistics from a footer. A column without them is left out.
func statsOf(f *parquet.File) (string, error) {
	all := stats{Records: f.NumRows(), Min: map[string]any{}, Max: map[string]any{}, Nulls: map[string]any{}}
	columns := 0
	for _, path := range f.Schema().Columns() {
		leaf, ok := f.Schema().Lookup(path...)
		if !ok || leaf.MaxRepetitionLevel > 0 {
			continue // these have no statistics
		}
		if columns++; columns > maxStatColumns {
			break
		}
		all.column(f.Metadata(), path, leaf)
	}
	b, err := json.Marshal(all)
	if err == nil && len(b) > maxStats {
		b, err = json.Marshal(stats{Records: all.Records})
	}
	return string(b), err
}

func (s *stats) column(meta *format.FileMetaData, path []string, leaf parquet.LeafColumn) {
	t := leaf.Node.Type()
	var low, high parquet.Value
	bounded, nulls, values := true, int64(0), int64(0)
	for i := range meta.RowGroups {
		c := &meta.RowGroups[i].Columns[leaf.ColumnIndex].MetaData
		of := &c.Statistics
		nulls, values = nulls+of.NullCount, values+c.NumValues
		if of.NullCount == c.NumValues {
			continue // nothing but nulls
		}
		lo, ok := plain(t, of.MinValue)
		hi, ok2 := plain(t, of.MaxValue)
		if bounded = bounded && ok && ok2; !bounded {
			continue
		}
		if low.IsNull() || t.Compare(lo, low) < 0 {
			low = lo
		}
		if high.IsNull() || t.Compare(hi, high) > 0 {
			high = hi
		}
	}
	// A footer that does not tell the count of nulls looks like one without nulls. Only a
	// column that cannot be null has certainly none.
	if nulls > 0 || leaf.MaxDefinitionLevel == 0 {
		put(s.Nulls, path, nulls)
	}
	if !bounded || low.IsNull() {
		return
	}
	lo, ok := statValue(t, low, false)
	hi, ok2 := statValue(t, high, true)
	if ok && ok2 {
		put(s.Min, path, lo)
		put(s.Max, path, hi)
	}
}

// put sets a value in the maps of a nested column.
func put(m map[string]any, path []string, v any) {
	for _, name := range path[:len(path)-1] {
		inner, ok := m[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			m[name] = inner
		}
		m = inner
	}
	m[path[len(path)-1]] = v
}

// plain decodes a bound of Parquet's statistics.
func plain(t parquet.Type, b []byte) (v parquet.Value, ok bool) {
	if b == nil {
		return v, false
	}
	switch k := t.Kind(); {
	case k == parquet.Int32 && len(b) == 4:
		return parquet.Int32Value(int32(binary.LittleEndian.Uint32(b))), true
	case k == parquet.Int64 && len(b) == 8:
		return parquet.Int64Value(int64(binary.LittleEndian.Uint64(b))), true
	case k == parquet.ByteArray:
		return parquet.ByteArrayValue(b), true
	case k == parquet.FixedLenByteArray:
		return parquet.FixedLenByteArrayValue(b), true
	}
	return v, false
}

// statValue returns a bound as Delta writes it. An upper bound may be higher than the value,
// and a lower one lower. Floating point numbers have none: the footer does not say whether
// there is a NaN, which is greater than all numbers for some engines.
//
// guard:delta-decimal-bounds. A Delta version states no bounds, the lowest and the highest value, for a
// decimal column that Parquet keeps as bytes.
//
//mutant:replace k == parquet.Int32 || k == parquet.Int64 => k >= 0
func statValue(t parquet.Type, v parquet.Value, upper bool) (any, bool) {
	meaning := logical(t)
	if d, ok := meaning.(*format.DecimalType); ok {
		if k := t.Kind(); k == parquet.Int32 || k == parquet.Int64 {
			return decimal(v, int(d.Scale)), true
		}
		return nil, false
	}
	switch t.Kind() {
	case parquet.Int32:
		if _, ok := meaning.(*format.DateType); ok {
			day := time.Unix(int64(v.Int32())*86400, 0).UTC()
			return day.Format(time.DateOnly), inCalendar(day)
		}
		return v.Int32(), true
	case parquet.Int64:
		if _, ok := meaning.(*format.TimestampType); ok {
			return moment(v.Int64(), upper)
		}
		return v.Int64(), true
	case parquet.ByteArray:
		if meaning != nil {
			return words(string(v.ByteArray()), upper)
		}
	}
	return nil, false
}

// moment returns a time. Some engines read milliseconds only, so bounds are widened to these.
func moment(micros int64, upper bool) (any, bool) {
	t := time.UnixMicro(micros).UTC()
	if !inCalendar(t) {
		return nil, false
	}
	cut := t.Truncate(time.Millisecond)
	if upper && cut.Before(t) {
		cut = cut.Add(time.Millisecond)
	}
	return cut.Format("2006-01-02T15:04:05.000Z"), true
}

func words(s string, upper bool) (any, bool) {
	if !utf8.ValidString(s) {
		return nil, false
	}
	if len(s) <= maxStatText {
		return s, true
	}
	if upper {
		return nil, false // cut off, it would be too low
	}
	return strings.ToValidUTF8(s[:maxStatText], ""), true
}

// inCalendar reports whether engines can read a time that is a bound. Others may be in a file, but
// a bound that cannot be read may make the table unreadable.
func inCalendar(t time.Time) bool { return t.Year() >= 1 && t.Year() <= 9998 }

// decimal returns a number with some digits after the point.
func decimal(v parquet.Value, scale int) json.Number {
	n := int64(v.Int32())
	if v.Kind() == parquet.Int64 {
		n = v.Int64()
	}
	sign, digits := "", strconv.FormatInt(n, 10)
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	digits = strings.Repeat("0", max(0, scale+1-len(digits))) + digits
	if scale > 0 {
		digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
	}
	return json.Number(sign + digits)
}
