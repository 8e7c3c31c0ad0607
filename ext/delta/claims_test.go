package delta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/format"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// claiming is a file of one column and one row group with so many rows, and a part of a column of 100 bytes.
func claiming(t *testing.T, rows int64, change func(*format.FileMetaData, *format.ColumnMetaData)) []byte {
	t.Helper()
	f := flat(1, 1, nil)
	m := &f.RowGroups[0].Columns[0].MetaData
	f.NumRows, f.RowGroups[0].NumRows, m.NumValues, m.TotalCompressedSize = rows, rows, rows, 100
	if change != nil {
		change(&f, m)
	}
	return append(append([]byte("PAR1"), make([]byte, 100)...), parquetEnd(marshal(t, f))[4:]...)
}

// A footer says of its rows what its row groups do not say, or names a place that is not in the file.
// WriteParquet takes nothing of that, and neither does a publisher.
//
// guard:delta-footer-rows. Without this check: the footer of a file of 1,000 rows says 0; WriteParquet
// leaves the file out as one without rows, and returns no error; its caller deletes the original; no
// table ever has these rows.
func TestFooterThatLies(t *testing.T) {
	type change = func(*format.FileMetaData, *format.ColumnMetaData)
	read := func(body []byte) error {
		_, err := readReady(bytes.NewReader(body), int64(len(body)))
		return err
	}
	if err := read(claiming(t, 1000, nil)); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]change{
		"no rows in the file":      func(f *format.FileMetaData, _ *format.ColumnMetaData) { f.NumRows = 0 },
		"negative rows":            func(f *format.FileMetaData, _ *format.ColumnMetaData) { f.NumRows = -1 },
		"many rows":                func(f *format.FileMetaData, _ *format.ColumnMetaData) { f.NumRows = 1 << 62 },
		"negative rows in a group": func(f *format.FileMetaData, _ *format.ColumnMetaData) { f.NumRows, f.RowGroups[0].NumRows = -1, -1 },
		"too many rows together": func(f *format.FileMetaData, _ *format.ColumnMetaData) {
			g := f.RowGroups[0]
			g.NumRows = math.MaxInt64
			f.RowGroups = append(f.RowGroups, g, g)
			f.NumRows = 998
		},
		"after the file":       func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.DataPageOffset = 1 << 40 },
		"in the magic":         func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.DataPageOffset = 3 },
		"at a negative byte":   func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.DataPageOffset = -4 },
		"into the footer":      func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.TotalCompressedSize = 101 },
		"of a negative size":   func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.TotalCompressedSize = -1 },
		"of negative values":   func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.NumValues = -1 },
		"in another file":      func(f *format.FileMetaData, _ *format.ColumnMetaData) { f.RowGroups[0].Columns[0].FilePath = "x" },
		"dictionary in magic":  func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.DictionaryPageOffset = 1 },
		"a size of everything": func(_ *format.FileMetaData, m *format.ColumnMetaData) { m.TotalCompressedSize = math.MaxInt64 },
	} {
		if err := read(claiming(t, 1000, of)); err == nil || !strings.Contains(err.Error(), "is no Parquet file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A publisher compares the rows with what the log says, if it says that.
func TestRowsOfTheLog(t *testing.T) {
	body, st := claiming(t, 7, nil), memstore.New(nil)
	if _, err := store.Create(context.Background(), st, "x", body, nil); err != nil {
		t.Fatal(err)
	}
	for records, fits := range map[uint64]bool{0: true, 7: true, 8: false, math.MaxUint64: false} {
		f := manifest.File{Key: "x", Size: int64(len(body)), CRC32C: crc(body), Records: records}
		_, err := readFooter(context.Background(), st, "x", f, nil)
		if (err == nil) != fits || err != nil && (!errors.Is(err, ErrSource) || !strings.Contains(err.Error(), "x has 7 rows, and the log says")) {
			t.Errorf("%d: %v", records, err)
		}
	}
}

// The statistics of some columns with long names take more than a checkpoint's text may: only the rows are told.
func TestStatisticsThatAreLong(t *testing.T) {
	body := claiming(t, 7, func(f *format.FileMetaData, m *format.ColumnMetaData) {
		one := f.RowGroups[0].Columns[0]
		name := strings.Repeat("\x01", maxColumnName-2)
		f.Schema, f.RowGroups[0].Columns = f.Schema[:1], nil
		f.Schema[0].NumChildren.V = maxStatColumns
		for i := range maxStatColumns {
			c := flat(1, 0, nil).Schema[1]
			c.Name = name + fmt.Sprintf("%02d", i)
			f.Schema = append(f.Schema, c)
			one.MetaData.PathInSchema = []string{c.Name}
			one.MetaData.Statistics = format.Statistics{MinValue: make([]byte, 8), MaxValue: make([]byte, 8)}
			f.RowGroups[0].Columns = append(f.RowGroups[0].Columns, one)
		}
	})
	f, err := decodeFooter(body, int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	if statsText(f) != `{"numRecords":7}` {
		t.Errorf("%d bytes of statistics: %.100s", len(statsText(f)), statsText(f))
	}
}
