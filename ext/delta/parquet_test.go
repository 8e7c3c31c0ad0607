package delta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/fencepost/fencepost/internal/test"
)

// readAllRows reads all rows of a Parquet file as programs do. The library panics on some files.
func readAllRows(body []byte) (n int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	f, err := parquet.OpenFile(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(io.Discard, &rowsOf{f: f}); err != nil {
		return 0, err
	}
	typed := make([]wide, f.NumRows())
	r := parquet.NewGenericReader[wide](f)
	defer func() { _ = r.Close() }()
	read, err := r.Read(typed)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return int64(read), err
}

// rowsOf reads the rows of each row group, and has no bytes.
type rowsOf struct{ f *parquet.File }

func (r *rowsOf) Read([]byte) (int, error) {
	for _, g := range r.f.RowGroups() {
		rows := g.Rows()
		buf := make([]parquet.Row, 64)
		for {
			_, err := rows.ReadRows(buf)
			if err != nil {
				_ = rows.Close()
				if errors.Is(err, io.EOF) {
					break
				}
				return 0, err
			}
		}
	}
	return 0, io.EOF
}

// wide has a column of each type, encoding and codec that a writer uses.
type wide struct {
	Bool     bool              `parquet:"bool"`
	Runs     bool              `parquet:"runs,optional"`
	Int32    int32             `parquet:"int32,delta"`
	Int64    int64             `parquet:"int64,dict,zstd"`
	Float    float32           `parquet:"float,split"`
	Double   float64           `parquet:"double,snappy"`
	Dict     string            `parquet:"dict,dict,gzip"`
	Plain    string            `parquet:"plain,optional,snappy"`
	Lengths  string            `parquet:"lengths,delta,zstd"`
	Prefixes []byte            `parquet:"prefixes,delta"`
	Fixed    [16]byte          `parquet:"fixed,uuid"`
	FixDict  [12]byte          `parquet:"fixdict,dict"`
	Old      deprecatedTime    `parquet:"old"`
	List     []string          `parquet:"list,list"`
	Map      map[string]string `parquet:"map"`
}

type deprecatedTime = int64

func wideFile(t testing.TB, rows int, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[wide](&b, options...)
	for i := range rows {
		s := fmt.Sprint("value ", i)
		r := wide{
			Bool: i%3 == 0, Runs: i > rows/2, Int32: int32(i), Int64: int64(i % 7), Float: float32(i), Double: float64(i), Dict: "dictionary " + s[:7],
			Plain: s, Lengths: s, Prefixes: []byte("prefix " + s), Fixed: [16]byte{byte(i)}, FixDict: [12]byte{byte(i % 3)}, List: []string{s, "x"}, Map: map[string]string{s: "y"},
		}
		if _, err := w.Write([]wide{r}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A file that a writer has made is checked, if its rows may take what they take. That it is checked takes no more.
func TestCheckParquet(t *testing.T) {
	for _, options := range [][]parquet.WriterOption{
		nil,
		{parquet.DataPageVersion(1), parquet.Compression(&parquet.Gzip)},
		{parquet.MaxRowsPerRowGroup(100), parquet.PageBufferSize(512)},
		{parquet.Compression(&parquet.Zstd), parquet.BloomFilters(parquet.SplitBlockFilter(10, "int64"))},
	} {
		for _, rows := range []int{0, 1, 2000} {
			body := wideFile(t, rows, options...)
			memory := int64(64 << 20)
			var err error
			checked := test.Allocated(func() { err = CheckParquet(bytes.NewReader(body), int64(len(body)), memory) })
			var n int64
			var failed error
			read := test.Allocated(func() { n, failed = readAllRows(body) })
			if err != nil || failed != nil || n != int64(rows) || read > memory || checked > memory {
				t.Errorf("%d rows in %d bytes with %d options: %v, %v; %d rows; the check took %d, reading took %d", rows, len(body), len(options), err, failed, n, checked, read)
			}
			if err := CheckParquet(bytes.NewReader(body), int64(len(body)), 1000); rows > 0 && (err == nil || !strings.Contains(err.Error(), "1000 bytes")) {
				t.Errorf("in 1,000 bytes of memory: %v", err)
			}
		}
	}
}

// widePages returns a file of which one column has other pages.
func widePages(t testing.TB, column string, codec format.CompressionCodec, change func(*format.FileMetaData, *format.ColumnMetaData), pages ...any) []byte {
	t.Helper()
	return replaced(t, wideFile(t, smallRows), column, codec, change, pages...)
}

// readingBombs returns files whose reader would allocate far more than they have. A page unpacks to so many bytes.
func readingBombs(t testing.TB, unpacked int) map[string][]byte {
	t.Helper()
	const most = math.MaxInt32
	none := format.Uncompressed
	first := func(column string, values int, encoding format.Encoding, data []byte) []byte {
		return widePages(t, column, none, nil, page2(values, 0, encoding, nil, nil, data)...)
	}
	deltas := func(head ...uint64) (b []byte) {
		for _, n := range head {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	dictionary := func(n int32, data []byte) []any {
		h := format.PageHeader{Type: format.DictionaryPage, UncompressedPageSize: int32(len(data)), CompressedPageSize: int32(len(data))}
		h.DictionaryPageHeader.Valid = true
		h.DictionaryPageHeader.V = format.DictionaryPageHeader{NumValues: n, Encoding: format.Plain}
		return []any{h, data}
	}
	zeros := make([]byte, 8*smallRows)
	text := append(binary.LittleEndian.AppendUint32(nil, 1<<20), make([]byte, 1<<20)...)
	stored := page2(smallRows, 0, format.Plain, nil, nil, zeros)
	h := stored[0].(format.PageHeader)
	h.CompressedPageSize = most
	big := bytes.Repeat([]byte("a"), unpacked)
	packed := func(codec format.CompressionCodec, claim int) []byte {
		b, err := parquet.LookupCompressionCodec(codec).Encode(nil, big)
		if err != nil {
			t.Fatal(err)
		}
		return widePages(t, "double", codec, nil, page2(smallRows, claim, format.Plain, nil, nil, b)...)
	}
	// A first part of a prefix is a megabyte, and all others have it.
	prefixes := append(deltas(128, 1, 4096, 0, 2<<20), 0)
	for range 31 {
		prefixes = append(prefixes, 0, 0)
	}
	return map[string][]byte{
		"a page of 2 billion bytes":        widePages(t, "double", none, nil, h, zeros),
		"2 billion values":                 first("double", most, format.Plain, zeros),
		"2 billion texts":                  widePages(t, "lengths", none, nil, page2(most, 0, format.Plain, nil, nil, zeros)...),
		"2 billion levels":                 widePages(t, "plain", none, nil, page2(most, 0, format.Plain, nil, run(most, 0), nil)...),
		"levels of more than the page":     widePages(t, "plain", none, nil, page2(smallRows, 0, format.Plain, nil, slices.Concat(run(1<<30, 0), run(1<<30, 0)), nil)...),
		"indexes of more than the page":    widePages(t, "dict", none, nil, slices.Concat(dictionary(1, []byte{1, 0, 0, 0, 'a'}), page2(smallRows, 0, format.RLEDictionary, nil, nil, append([]byte{1}, run(1<<30, 0)...)))...),
		"integers of more than the page":   first("int64", smallRows, format.DeltaBinaryPacked, deltas(128, 4, most, 0)),
		"integers of 32 bits of that kind": first("int32", smallRows, format.DeltaBinaryPacked, deltas(128, 4, most, 0)),
		"booleans of more than the page":   first("bool", smallRows, format.RLE, append([]byte{6, 0, 0, 0}, run(most, 1)...)),
		"lengths of more than the page":    first("lengths", smallRows, format.DeltaLengthByteArray, deltas(128, 4, most, 0)),
		"a dictionary of 2 billion":        widePages(t, "dict", none, nil, dictionary(most, []byte{1, 0, 0, 0, 'a'})...),
		"a text in each of 4,096 rows":     widePages(t, "dict", none, nil, slices.Concat(dictionary(1, text), page2(4096, 0, format.RLEDictionary, nil, nil, append([]byte{1}, run(4096, 0)...)))...),
		"zstd":                             packed(format.Zstd, unpacked),
		"gzip":                             packed(format.Gzip, unpacked),
		"snappy":                           packed(format.Snappy, unpacked),
		"zstd that claims little":          packed(format.Zstd, 8*smallRows),
		"gzip that claims little":          packed(format.Gzip, 8*smallRows),
		"gzip that claims nothing":         packed(format.Gzip, 1),
		"rows that are not there": widePages(t, "double", none, func(f *format.FileMetaData, _ *format.ColumnMetaData) {
			f.NumRows, f.RowGroups[0].NumRows = 1<<40, 1<<40
		}),
		"rows of no columns": parquetEnd(marshal(t, format.FileMetaData{Version: 1, NumRows: 1 << 40, Schema: []format.SchemaElement{{Name: "root"}}, RowGroups: []format.RowGroup{{NumRows: 1 << 40}}})),
		"an index of billions": widePages(t, "double", none, func(f *format.FileMetaData, _ *format.ColumnMetaData) {
			for i := range f.RowGroups[0].Columns {
				c := &f.RowGroups[0].Columns[i]
				c.ColumnIndexOffset, c.ColumnIndexLength = 4, most
			}
		}),
		"a fixed length of 2 billion": widePages(t, "fixed", none, func(f *format.FileMetaData, _ *format.ColumnMetaData) {
			for i := range f.Schema {
				if f.Schema[i].Name == "fixed" {
					f.Schema[i].TypeLength.V = most
				}
			}
		}),
		"prefixes": first("prefixes", 4096, format.DeltaByteArray, prefixes),
	}
}

// A file claims more than it has, or unpacks to far more. The check says so, and takes little.
func TestReadingBombs(t *testing.T) {
	if !inChild(t) {
		return
	}
	const memory = 256 << 20
	all := readingBombs(t, 300<<20)
	for name, body := range all {
		var err error
		n := test.Allocated(func() { err = CheckParquet(bytes.NewReader(body), int64(len(body)), memory) })
		if err == nil || n > memory+int64(len(body)) {
			t.Errorf("%s: %d bytes took %d: %v", name, len(body), n, err)
		}
		t.Log(name, len(body), n, err)
	}
}

// FuzzCheckParquet: what the check lets through is read with about the memory that the caller allows.
func FuzzCheckParquet(f *testing.F) {
	f.Add(wideFile(f, 3))
	f.Add(wideFile(f, 30, parquet.DataPageVersion(1), parquet.Compression(&parquet.Gzip)))
	f.Add(wideFile(f, 30, parquet.MaxRowsPerRowGroup(10)))
	for _, body := range readingBombs(f, 1<<20) {
		if len(body) < 1<<16 {
			f.Add(body)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		const memory, slack = 16 << 20, 4 << 20
		var err error
		bound := 2*int64(memory) + footerBound(len(body)) + slack
		if n := test.Allocated(func() { err = CheckParquet(bytes.NewReader(body), int64(len(body)), memory) }); n > bound {
			t.Errorf("the check of %d bytes took %d: %v", len(body), n, err)
		}
		if err != nil {
			return
		}
		if n := test.Allocated(func() { _, err = readAllRows(body) }); n > bound {
			t.Errorf("reading %d bytes took %d: %v", len(body), n, err)
		}
	})
}
