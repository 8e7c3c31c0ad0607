package delta

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

// statsFor writes rows to a Parquet file, with two of them in each row group, and returns what the
// table says of it.
func statsFor(t *testing.T, root parquet.Node, rows ...parquet.Row) (low, high map[string]any, text string) {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewWriter(&b, parquet.NewSchema("x", root), parquet.MaxRowsPerRowGroup(2))
	if _, err := w.WriteRows(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := decodeFooter(b.Bytes(), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var all stats
	if err := json.Unmarshal([]byte(statsText(f)), &all); err != nil {
		t.Fatal(err)
	}
	return all.Min, all.Max, statsText(f)
}

func row1(v parquet.Value) parquet.Row { return parquet.Row{v.Level(0, 0, 0)} }

// The bounds of decimals in byte arrays are those of signed numbers, or there are none: the library
// compares bytes.
//
// guard:delta-decimal-bounds. The library that writes such a file compares the bytes without a sign,
// and puts -5 after 3. Without this rule: a file has -5 and 3; the version states a lowest value above
// -5; engines that look for -5 leave the file out.
func TestDecimalBounds(t *testing.T) {
	big := func(n int64) parquet.Row {
		b := binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(n))
		if n < 0 {
			binary.BigEndian.PutUint64(b, math.MaxUint64)
		}
		return row1(parquet.FixedLenByteArrayValue(b))
	}
	root := parquet.Group{"d": parquet.Decimal(2, 38, parquet.FixedLenByteArrayType(16))}
	for _, rows := range [][]parquet.Row{{big(-500), big(300)}, {big(-500), big(-400), big(100), big(300)}} {
		low, high, text := statsFor(t, root, rows...)
		if v, ok := low["d"].(float64); ok && v > -5 {
			t.Errorf("the lower bound of -5.00 is %v: %s", v, text)
		}
		if v, ok := high["d"].(float64); ok && v < 3 {
			t.Errorf("the upper bound of 3.00 is %v: %s", v, text)
		}
	}
	low, high, text := statsFor(t, parquet.Group{"d": parquet.Decimal(2, 9, parquet.Int32Type)}, row1(parquet.Int32Value(-5)), row1(parquet.Int32Value(3)), row1(parquet.Int32Value(1)))
	if low["d"] != -0.05 || high["d"] != 0.03 {
		t.Errorf("of 32 bits: %s", text)
	}
	type inBytes struct {
		D [16]byte `parquet:"d,decimal(2:38)"`
	}
	var log struct{ Log }
	if _, err := NewWriter[inBytes](t.Context(), log, nil); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "18 digits") {
		t.Errorf("a writer of decimals in bytes: %v", err)
	}
}

// A day that no calendar of an engine has gives no bound: engines read the bounds as days.
func TestDateBounds(t *testing.T) {
	for _, day := range []int32{math.MaxInt32, math.MinInt32, 2932897} {
		low, high, text := statsFor(t, parquet.Group{"d": parquet.Date()}, row1(parquet.Int32Value(day)), row1(parquet.Int32Value(1)))
		if len(low) != 0 || len(high) != 0 {
			t.Errorf("day %d: %s", day, text)
		}
	}
}

// The bounds of texts with a long common beginning, in several row groups and pages.
func TestTextBounds(t *testing.T) {
	common := strings.Repeat("a", 40)
	low, high, text := statsFor(t, parquet.Group{"s": parquet.String()}, row1(parquet.ByteArrayValue([]byte(common+"M"))), row1(parquet.ByteArrayValue([]byte(common+"é"))), row1(parquet.ByteArrayValue([]byte(common))))
	if low["s"] != common || high["s"] != common+"é" {
		t.Error(text)
	}
	low, high, text = statsFor(t, parquet.Group{"s": parquet.String()}, row1(parquet.ByteArrayValue([]byte(strings.Repeat("a", 63)+"é"))))
	if low["s"] != strings.Repeat("a", 63) && low["s"] != nil || high["s"] != nil {
		t.Error(text)
	}
	low, high, text = statsFor(t, parquet.Group{"s": parquet.String()}, row1(parquet.ByteArrayValue(nil)), row1(parquet.ByteArrayValue([]byte("x"))))
	if v := low["s"]; v != "" && v != nil {
		t.Error(text)
	}
	_ = high
}

// Several pages in one row group, and nulls.
func TestPagedBounds(t *testing.T) {
	var b bytes.Buffer
	w := parquet.NewWriter(&b, parquet.NewSchema("x", parquet.Group{"s": parquet.Optional(parquet.String()), "n": parquet.Optional(parquet.Leaf(parquet.Int64Type))}), parquet.PageBufferSize(64))
	var rows []parquet.Row
	for i := range 1000 {
		n, s := parquet.Int64Value(int64(i-500)).Level(0, 1, 0), parquet.ByteArrayValue([]byte(strings.Repeat("x", 17)+string(rune('a'+i%26)))).Level(0, 1, 1)
		if i%10 == 0 {
			n, s = parquet.NullValue().Level(0, 0, 0), parquet.NullValue().Level(0, 0, 1)
		}
		rows = append(rows, parquet.Row{n, s})
	}
	if _, err := w.WriteRows(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := decodeFooter(b.Bytes(), int64(b.Len()))
	if want := `{"numRecords":1000,"minValues":{"n":-499,"s":"xxxxxxxxxxxxxxxxxa"},"maxValues":{"n":499,"s":"xxxxxxxxxxxxxxxxxz"},"nullCount":{"n":100,"s":100}}`; err != nil || statsText(f) != want {
		t.Error(f, err)
	}
}
