package delta

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	pq "github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/fencepost/fencepost/internal/test"
)

// What the decoders may allocate for an input of n bytes.
func footerBound(n int) int64 {
	return min(2*footerMemory+4*memoryPerByte*int64(n), 2*maxFooterMemory)
}
func checkpointBound(n int) int64 {
	return 2 * min(checkpointMemory+checkpointFactor*int64(n), maxCheckpointMemory)
}

// inChild is test.InChild with 3 GiB.
func inChild(t *testing.T) bool {
	t.Helper()
	return test.InChild(t, 3<<30)
}

// parquetEnd returns the end of a file with a footer.
func parquetEnd(footer []byte) []byte {
	b := append([]byte("PAR1"), footer...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(footer))), "PAR1"...)
}

// crc is the checksum of a file that a log keeps.
func crc(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	b, err := pq.Marshal(&pq.CompactProtocol{}, v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// flat returns a footer of some columns and row groups.
func flat(columns, groups int, change func(*format.FileMetaData)) format.FileMetaData {
	f := format.FileMetaData{Version: 1, Schema: []format.SchemaElement{{Name: "root", NumChildren: pq.New(int32(columns))}}}
	for i := range columns {
		f.Schema = append(f.Schema, format.SchemaElement{Name: fmt.Sprint("c", i), Type: pq.New(format.Int64)})
	}
	for range groups {
		g := format.RowGroup{}
		for i := range columns {
			g.Columns = append(g.Columns, format.ColumnChunk{MetaData: format.ColumnMetaData{Type: format.Int64, Encoding: []format.Encoding{format.Plain}, PathInSchema: []string{fmt.Sprint("c", i)}, DataPageOffset: 4}})
		}
		f.RowGroups = append(f.RowGroups, g)
	}
	if change != nil {
		change(&f)
	}
	return f
}

// A footer claims more than it has, or has what takes far more memory than bytes. There is an error, or
// little is allocated.
//
// guard:delta-footer-lengths. The library allocates what a length claims. Without this check: somebody
// commits a file of 27 bytes, whose footer claims a schema of 2 billion elements; the publisher reads
// it, and the process runs out of memory, which no recover catches; each publisher of that table ends
// in the same way, and none says which file it was.
func TestFooterBombs(t *testing.T) {
	if !inChild(t) {
		return
	}
	const millions = 2 << 20
	// version: a list begins field 2, 4 or 5.
	list := func(skip byte, of byte, n uint64, elements []byte) []byte {
		b := binary.AppendUvarint([]byte{0x15, 2, skip<<4 | thriftList, 0xf0 | of}, n)
		return append(append(b, elements...), 0)
	}
	empty, text := make([]byte, millions), bytes.Repeat([]byte{0}, millions)
	unknown := func(of byte) []byte { // field 20
		return []byte{0x15, 2, of, 40}
	}
	deep := func(open, closed []byte) []byte {
		return append(append(append(unknown(thriftStruct), bytes.Repeat(open, 100_000)...), bytes.Repeat(closed, 100_000)...), 0)
	}
	chain := flat(0, 0, func(f *format.FileMetaData) {
		f.Schema = nil
		for range 20_000 {
			f.Schema = append(f.Schema, format.SchemaElement{Name: "g", NumChildren: pq.New(int32(1))})
		}
		f.Schema = append(f.Schema, format.SchemaElement{Name: "leaf", Type: pq.New(format.Int64)})
	})
	for name, footer := range map[string][]byte{
		"schema of 2 billion":          list(1, thriftStruct, math.MaxInt32, nil),
		"row groups of 2 billion":      list(3, thriftStruct, math.MaxInt32, nil),
		"metadata of 2 billion":        list(4, thriftStruct, math.MaxInt32, nil),
		"orders of 2 billion":          list(6, thriftStruct, math.MaxInt32, nil),
		"empty elements":               list(1, thriftStruct, millions, empty),
		"empty row groups":             list(3, thriftStruct, millions, empty),
		"empty metadata":               list(4, thriftStruct, millions, empty),
		"empty columns":                append(list(3, thriftStruct, 1, nil)[:5], append(binary.AppendUvarint([]byte{0x19, 0xfc}, millions), make([]byte, millions+2)...)...),
		"a text of 2 billion":          append([]byte{0x15, 2, 0x58}, binary.AppendUvarint(nil, math.MaxInt32)...),
		"a map of 2 billion":           append(unknown(thriftMap), binary.AppendUvarint(nil, math.MaxInt32)...),
		"empty texts":                  append(append(binary.AppendUvarint(append(unknown(thriftList), 0xf0|thriftBinary), millions), text...), 0),
		"100,000 structs deep":         deep([]byte{0x1c}, []byte{0}),
		"100,000 lists deep":           deep([]byte{0x19, 0x19}, []byte{0}),
		"20,000 groups deep":           marshal(t, chain),
		"5,000 columns in many groups": marshal(t, flat(5000, 0, func(f *format.FileMetaData) { f.RowGroups = make([]format.RowGroup, 100_000) })),
		"2 billion children":           marshal(t, flat(3, 1, func(f *format.FileMetaData) { f.Schema[0].NumChildren.V = math.MaxInt32 })),
		"negative children":            marshal(t, flat(3, 1, func(f *format.FileMetaData) { f.Schema[0].NumChildren.V = -1 })),
		"too many children":            marshal(t, flat(3, 1, func(f *format.FileMetaData) { f.Schema[0].NumChildren.V = 2 })),
		"a leaf with children":         marshal(t, flat(3, 1, func(f *format.FileMetaData) { f.Schema[1].NumChildren = pq.New(int32(1)) })),
		"100,000 columns":              marshal(t, flat(100_000, 0, nil)),
		"a name of a megabyte":         marshal(t, flat(1, 1, func(f *format.FileMetaData) { f.Schema[1].Name = strings.Repeat("x", 1<<20) })),
		"a footer in a footer":         nil,
		"a decimal of 2 billion digits": marshal(t, flat(1, 1, func(f *format.FileMetaData) {
			f.Schema[1].LogicalType = format.LogicalType{Value: &format.DecimalType{Scale: math.MaxInt32, Precision: 18}}
			m := &f.RowGroups[0].Columns[0].MetaData
			m.NumValues, m.Statistics = 1, format.Statistics{MinValue: make([]byte, 8), MaxValue: make([]byte, 8)}
		})),
		"fields twice": append(append([]byte{0x15, 2, 0x19, 0x0c, 0, 0x15}, 2), 0x00),
	} {
		t.Log(name)
		end := parquetEnd(footer)
		if name == "a footer in a footer" {
			binary.LittleEndian.PutUint32(end[len(end)-8:], math.MaxUint32)
		}
		var err error
		if n := test.Allocated(func() { _, err = decodeFooter(end, int64(len(end))) }); n > footerBound(len(end)) || err == nil {
			t.Errorf("%s: %d bytes took %d: %v", name, len(end), n, err)
		}
	}
}

// A large footer that is right is read, and what it takes is within the bound.
func TestLargeFooterIsAffordable(t *testing.T) {
	for _, of := range [][2]int{{1, 1}, {10, 2000}, {9000, 2}, {300, 50}, {9000, 20}, {10, 25_000}} {
		end := parquetEnd(marshal(t, flat(of[0], of[1], nil)))
		var err error
		n := test.Allocated(func() { _, err = decodeFooter(end, int64(len(end))) })
		if err != nil || n > footerBound(len(end)) {
			t.Errorf("%d columns in %d row groups, in %d bytes, took %d: %v", of[0], of[1], len(end), n, err)
		}
	}
}

// withPages returns a checkpoint of which one column is told by other pages.
func withPages(t testing.TB, column string, codec format.CompressionCodec, change func(*format.FileMetaData, *format.ColumnMetaData), pages ...any) []byte {
	t.Helper()
	body, err := encodeCheckpoint(small(), 0)
	if err != nil {
		t.Fatal(err)
	}
	return replaced(t, body, column, codec, change, pages...)
}

// replaced returns a file of which one column is told by other pages.
func replaced(t testing.TB, body []byte, column string, codec format.CompressionCodec, change func(*format.FileMetaData, *format.ColumnMetaData), pages ...any) []byte {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(body), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	meta := *f.Metadata()
	out := slices.Clone(body[:len(body)-8-int(binary.LittleEndian.Uint32(body[len(body)-8:]))])
	at := int64(len(out))
	values := int64(0)
	for _, p := range pages {
		switch p := p.(type) {
		case []byte:
			out = append(out, p...)
		case format.PageHeader:
			out = append(out, marshal(t, p)...)
			values += int64(p.DataPageHeader.V.NumValues) + int64(p.DataPageHeaderV2.V.NumValues)
		}
	}
	found := false
	for i := range meta.RowGroups[0].Columns {
		m := &meta.RowGroups[0].Columns[i].MetaData
		if found = strings.Join(m.PathInSchema, ".") == column; !found {
			continue
		}
		if len(pages) > 0 {
			m.DataPageOffset, m.DictionaryPageOffset, m.TotalCompressedSize, m.NumValues, m.Codec = at, 0, int64(len(out))-at, values, codec
		}
		if change != nil {
			change(&meta, m)
		}
		break
	}
	if !found {
		t.Fatal("there is no column " + column)
	}
	return append(out, parquetEnd(marshal(t, meta))[4:]...)
}

// page2 returns the header of a page and its parts. Size 0 is the right one if nothing is packed.
func page2(values, size int, encoding format.Encoding, reps, defs, data []byte) []any {
	stored := len(reps) + len(defs) + len(data)
	if size == 0 {
		size = stored
	}
	return []any{format.PageHeader{
		Type: format.DataPageV2, UncompressedPageSize: int32(size), CompressedPageSize: int32(stored),
		DataPageHeaderV2: pq.New(format.DataPageHeaderV2{
			NumValues: int32(values), NumRows: 7, Encoding: encoding, RepetitionLevelsByteLength: int32(len(reps)), DefinitionLevelsByteLength: int32(len(defs)),
		}),
	}, slices.Concat(reps, defs, data)}
}

func run(n uint64, v byte) []byte { return append(binary.AppendUvarint(nil, n<<1), v) }

// small has so many rows.
const smallRows = 7

// bombs returns checkpoints that claim more than they have, or unpack to far more.
func bombs(t *testing.T) map[string][]byte {
	t.Helper()
	big := bytes.Repeat([]byte("a"), 68<<20)
	uncompressed, snappy, gzipped, zstd := format.Uncompressed, format.Snappy, format.Gzip, format.Zstd
	packed := func(codec format.CompressionCodec) []byte {
		b, err := parquet.LookupCompressionCodec(codec).Encode(nil, big)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	plain := func(size int, data []byte, defs []byte) []any {
		return page2(smallRows, size, format.Plain, nil, defs, data)
	}
	all := run(smallRows, 1)
	const most = math.MaxInt32
	deltas := func(head ...uint64) (b []byte) {
		for _, n := range head {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	dictionary := func(n int32, data []byte) []any {
		return []any{format.PageHeader{
			Type: format.DictionaryPage, UncompressedPageSize: int32(len(data)), CompressedPageSize: int32(len(data)),
			DictionaryPageHeader: pq.New(format.DictionaryPageHeader{NumValues: n, Encoding: format.Plain}),
		}, data}
	}
	path := "add.path"
	first := func(change func(*format.FileMetaData, *format.ColumnMetaData)) []byte {
		return withPages(t, path, snappy, change)
	}
	b := map[string][]byte{
		"snappy":                   withPages(t, path, snappy, nil, plain(68<<20+len(all), packed(snappy), all)...),
		"zstd":                     withPages(t, path, zstd, nil, plain(68<<20+len(all), packed(zstd), all)...),
		"gzip":                     withPages(t, path, gzipped, nil, plain(68<<20+len(all), packed(gzipped), all)...),
		"zstd that claims little":  withPages(t, path, zstd, nil, plain(100, packed(zstd), all)...),
		"gzip that claims little":  withPages(t, path, gzipped, nil, plain(100, packed(gzipped), all)...),
		"snappy that claims much":  withPages(t, path, snappy, nil, plain(100, append(binary.AppendUvarint(nil, math.MaxUint32), 0), all)...),
		"none, 2 billion bytes":    withPages(t, path, uncompressed, nil, plain(most, nil, all)...),
		"gzip, 2 billion bytes":    withPages(t, path, gzipped, nil, plain(most, nil, all)...),
		"zstd, 2 billion bytes":    withPages(t, path, zstd, nil, plain(most, nil, all)...),
		"brotli":                   withPages(t, path, format.Brotli, nil, plain(100, []byte{1}, all)...),
		"lz4":                      withPages(t, path, format.Lz4Raw, nil, plain(100, []byte{1}, all)...),
		"negative size":            withPages(t, path, snappy, nil, plain(-1, nil, all)...),
		"levels longer than page":  withPages(t, path, snappy, nil, plain(1, nil, all)...),
		"a text of 4 billion":      withPages(t, path, uncompressed, nil, plain(4+len(all), []byte{255, 255, 255, 255}, all)...),
		"a dictionary of billions": withPages(t, path, uncompressed, nil, dictionary(most, []byte{1, 0, 0, 0, 'a'})...),
		"an index of 32 bits":      withPages(t, path, uncompressed, nil, slices.Concat(dictionary(1, []byte{1, 0, 0, 0, 'a'}), page2(smallRows, 0, format.RLEDictionary, nil, all, []byte{32, 14, 255, 255, 255, 127}))...),
		"an index of 255 bits":     withPages(t, path, uncompressed, nil, slices.Concat(dictionary(1, []byte{1, 0, 0, 0, 'a'}), page2(smallRows, 0, format.RLEDictionary, nil, all, []byte{255, 14, 255, 255, 255, 127}))...),
		"lengths of billions":      withPages(t, path, uncompressed, nil, page2(smallRows, 0, format.DeltaLengthByteArray, nil, all, deltas(128, 4, most, 0))...),
		"a block of billions":      withPages(t, path, uncompressed, nil, page2(smallRows, 0, format.DeltaLengthByteArray, nil, all, deltas(1<<40, 1, smallRows, 0))...),
		"parts of billions":        withPages(t, path, uncompressed, nil, page2(smallRows, 0, format.DeltaLengthByteArray, nil, all, deltas(128, 1<<62, smallRows, 0))...),
		"no parts":                 withPages(t, path, uncompressed, nil, page2(smallRows, 0, format.DeltaLengthByteArray, nil, all, deltas(128, 0, smallRows, 0))...),
		"negative lengths":         withPages(t, path, uncompressed, nil, page2(smallRows, 0, format.DeltaLengthByteArray, nil, all, append(deltas(128, 4, smallRows, 1, 0), 0, 0, 0, 0))...),
		"prefixes":                 withPages(t, path, uncompressed, nil, page2(smallRows, 0, format.DeltaByteArray, nil, all, deltas(128, 4, smallRows, 0))...),
		"billions of elements":     withPages(t, "add.tags.key_value.value", uncompressed, nil, page2(most, 0, format.Plain, append(run(1, 0), run(most, 1)...), run(most, 3), nil)...),
		"elements that are none":   withPages(t, "protocol.writerFeatures.list.element", uncompressed, nil, page2(smallRows+1, 0, format.Plain, append(append(run(1, 0), run(1, 1)...), run(smallRows-1, 0)...), run(smallRows+1, 0), nil)...),
		"billions of nulls":        withPages(t, path, uncompressed, nil, page2(most, 0, format.Plain, nil, run(most, 0), nil)...),
		"rows that are not there":  first(func(f *format.FileMetaData, _ *format.ColumnMetaData) { f.NumRows, f.RowGroups[0].NumRows = most, most }),
		"negative rows":            first(func(f *format.FileMetaData, _ *format.ColumnMetaData) { f.RowGroups[0].NumRows = math.MinInt64 }),
		"rows in many groups": first(func(f *format.FileMetaData, _ *format.ColumnMetaData) {
			for range 1000 {
				f.RowGroups = append(f.RowGroups, f.RowGroups[0])
			}
		}),
		"a chunk before the file":   first(func(_ *format.FileMetaData, c *format.ColumnMetaData) { c.DataPageOffset = math.MinInt64 }),
		"a chunk after the file":    first(func(_ *format.FileMetaData, c *format.ColumnMetaData) { c.DataPageOffset = math.MaxInt64 }),
		"a chunk of too much":       first(func(_ *format.FileMetaData, c *format.ColumnMetaData) { c.TotalCompressedSize = math.MaxInt64 }),
		"negative values":           first(func(_ *format.FileMetaData, c *format.ColumnMetaData) { c.NumValues = -1 }),
		"values that are not there": first(func(_ *format.FileMetaData, c *format.ColumnMetaData) { c.NumValues = math.MaxInt64 }),
		"a schema of 2 billion":     parquetEnd([]byte("\x15\x02\x19\xfc\xff\xff\xff\xff\x07\x00\x00\x00\x00\x00\x00")),
	}
	for name, n := range map[string]int{"a dictionary's value of 3 MiB": 3 << 20, "a dictionary's value of 64 MiB": 60 << 20} {
		text := append(binary.LittleEndian.AppendUint32(nil, uint32(n)), big[:n]...)
		stored, err := parquet.Snappy.Encode(nil, text)
		if err != nil {
			t.Fatal(err)
		}
		pages := dictionary(1, stored)
		h := pages[0].(format.PageHeader)
		h.UncompressedPageSize = int32(len(text))
		pages[0] = h
		reps, defs := append(run(1, 0), run(100_000, 1)...), run(100_001, 4)
		indexes, err := parquet.Snappy.Encode(nil, append([]byte{1}, run(100_001, 0)...))
		if err != nil {
			t.Fatal(err)
		}
		many := page2(100_001, len(reps)+len(defs)+5, format.RLEDictionary, reps, defs, indexes)
		b[name] = withPages(t, "add.tags.key_value.value", snappy, nil, slices.Concat(pages, many)...)
	}
	return b
}

// A checkpoint claims more than it has, or unpacks to far more. It cannot be read, and the error names
// it.
//
// guard:delta-unpacked. A publisher adds up what the pages of a checkpoint claim to unpack to, and what
// their values take, before it unpacks each. Without this check: somebody who can write to the Delta
// log, but not to the logs, creates a checkpoint of 138 KB that unpacks to 2 GB; each publisher that
// begins reads it before it can compare it with a commit, and the process runs out of memory.
func TestCheckpointBombs(t *testing.T) {
	if !inChild(t) {
		return
	}
	for name, body := range bombs(t) {
		t.Log(name, len(body))
		var err error
		n := test.Allocated(func() { _, err = decodeCheckpoint(3, body) })
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), checkpointKey(3)) || strings.Contains(err.Error(), "no metaData") {
			t.Errorf("%s: %v", name, err)
		}
		if n > checkpointBound(len(body)) {
			t.Errorf("%s: %d bytes took %d: %v", name, len(body), n, err)
		}
		t.Log(err)
	}
}
