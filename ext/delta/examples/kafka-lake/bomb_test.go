package main

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/memstore"
)

// bombs are files of a few hundred bytes that claim gigabytes: their footer, or their only page.
func bombs(t *testing.T) map[string][]byte {
	t.Helper()
	marshal := func(v any) []byte {
		b, err := thrift.Marshal(&thrift.CompactProtocol{}, v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	page := marshal(format.PageHeader{
		Type: format.DataPage, UncompressedPageSize: math.MaxInt32, CompressedPageSize: 1,
		DataPageHeader: thrift.New(format.DataPageHeader{NumValues: 1, Encoding: format.Plain, DefinitionLevelEncoding: format.RLE, RepetitionLevelEncoding: format.RLE}),
	})
	body := append(append([]byte("PAR1"), page...), 0)
	footer := marshal(format.FileMetaData{
		Version: 1, NumRows: 1,
		Schema: []format.SchemaElement{{Name: "root", NumChildren: thrift.New(int32(1))}, {Name: "offset", Type: thrift.New(format.Int64)}},
		RowGroups: []format.RowGroup{{NumRows: 1, Columns: []format.ColumnChunk{{MetaData: format.ColumnMetaData{
			Type: format.Int64, Encoding: []format.Encoding{format.Plain}, PathInSchema: []string{"offset"}, Codec: format.Zstd,
			NumValues: 1, DataPageOffset: 4, TotalCompressedSize: int64(len(page)) + 1,
		}}}}},
	})
	body = append(body, footer...)
	return map[string][]byte{
		"footer": []byte("PAR1\x15\x02\x19\xfc\xff\xff\xff\xff\x07\x00\x00\x00\x00\x00\x00\x0f\x00\x00\x00PAR1"),
		"page":   append(binary.LittleEndian.AppendUint32(body, uint32(len(footer))), "PAR1"...),
	}
}

// A file of the table claims more than it has. It is not read, and nobody runs out of memory.
func TestBombsAreNotRead(t *testing.T) {
	if !test.InChild(t, 3<<30) {
		return
	}
	root := memstore.New(nil)
	for name, body := range bombs(t) {
		if _, err := root.Put(t.Context(), name, body, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := readFile(t.Context(), root, name); err == nil || !strings.HasPrefix(err.Error(), "delta: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
