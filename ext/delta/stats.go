package delta

import (
	"encoding/binary"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
)

const (
	// maxColumns is of how many columns there are statistics, and maxStatText of how many
	// bytes of a text.
	maxColumns  = 100
	maxStatText = 64
)

// ColumnStats is what a footer tells of a column that is not repeated.
type ColumnStats struct {
	// Path are the names from the root to the column.
	Path []string
	// Type is its primitive type, as [DataType.Name].
	Type string
	// Values counts the values with the nulls. Nulls counts these, if CountsNulls.
	Values, Nulls int64
	CountsNulls   bool
	// Low and High are bounds, or nil: an int64, which is a number, the days or the microseconds since 1970, or a decimal
	// without its point; or a string. Low may be less than the least value. Floating point numbers have none:
	// the footer does not say whether there is a NaN, which is greater than all numbers for some engines.
	Low, High any
}

// columnsOf takes the statistics from a footer. A column without them is left out.
func columnsOf(f *parquet.File) (all []ColumnStats) {
	for _, path := range f.Schema().Columns() {
		leaf, ok := f.Schema().Lookup(path...)
		if !ok || leaf.MaxRepetitionLevel > 0 {
			continue // these have no statistics
		}
		if len(all) == maxColumns {
			break
		}
		all = append(all, columnOf(f.Metadata(), path, leaf))
	}
	return all
}

func columnOf(meta *format.FileMetaData, path []string, leaf parquet.LeafColumn) ColumnStats {
	t := leaf.Node.Type()
	name, _ := primitive(t.Kind(), logical(t))
	s := ColumnStats{Path: path, Type: name}
	var low, high parquet.Value
	bounded := true
	for i := range meta.RowGroups {
		c := &meta.RowGroups[i].Columns[leaf.ColumnIndex].MetaData
		of := &c.Statistics
		s.Nulls, s.Values = s.Nulls+of.NullCount, s.Values+c.NumValues
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
	s.CountsNulls = s.Nulls > 0 || leaf.MaxDefinitionLevel == 0
	if !bounded || low.IsNull() {
		return s
	}
	lo, hi := bound(t, low, false), bound(t, high, true)
	if lo != nil && hi != nil {
		s.Low, s.High = lo, hi
	}
	return s
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

// bound returns a bound, or nil. An upper bound may be higher than the value, and a lower one lower.
//
// guard:delta-decimal-bounds. A version states no bounds, the lowest and the highest value, for a
// decimal column that Parquet keeps as bytes.
//
//mutant:replace !decimal || k == parquet.Int32 || k == parquet.Int64 => k >= 0
func bound(t parquet.Type, v parquet.Value, upper bool) any {
	meaning, k := logical(t), t.Kind()
	_, decimal := meaning.(*format.DecimalType)
	if known := !decimal || k == parquet.Int32 || k == parquet.Int64; !known {
		return nil
	}
	switch k {
	case parquet.Int32:
		if _, ok := meaning.(*format.DateType); ok && !inCalendar(time.Unix(int64(v.Int32())*86400, 0).UTC()) {
			return nil
		}
		return int64(v.Int32())
	case parquet.Int64:
		if _, ok := meaning.(*format.TimestampType); ok && !inCalendar(time.UnixMicro(v.Int64()).UTC()) {
			return nil
		}
		return v.Int64()
	case parquet.ByteArray:
		if meaning != nil {
			return words(string(v.ByteArray()), upper)
		}
	}
	return nil
}

func words(s string, upper bool) any {
	if !utf8.ValidString(s) {
		return nil
	}
	if len(s) <= maxStatText {
		return s
	}
	if upper {
		return nil // cut off, it would be too low
	}
	return strings.ToValidUTF8(s[:maxStatText], "")
}

// inCalendar reports whether engines can read a time that is a bound. Others may be in a file, but
// a bound that cannot be read may make the table unreadable.
func inCalendar(t time.Time) bool { return t.Year() >= 1 && t.Year() <= 9998 }
