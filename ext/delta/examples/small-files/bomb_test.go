package main

import (
	"encoding/binary"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
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
		Schema: []format.SchemaElement{{Name: "root", NumChildren: thrift.New(int32(1))}, {Name: "n", Type: thrift.New(format.Int64)}},
		RowGroups: []format.RowGroup{{NumRows: 1, Columns: []format.ColumnChunk{{MetaData: format.ColumnMetaData{
			Type: format.Int64, Encoding: []format.Encoding{format.Plain}, PathInSchema: []string{"n"}, Codec: format.Zstd,
			NumValues: 1, DataPageOffset: 4, TotalCompressedSize: int64(len(page)) + 1,
		}}}}},
	})
	body = append(body, footer...)
	return map[string][]byte{
		"footer": []byte("PAR1\x15\x02\x19\xfc\xff\xff\xff\xff\x07\x00\x00\x00\x00\x00\x00\x0f\x00\x00\x00PAR1"),
		"page":   append(binary.LittleEndian.AppendUint32(body, uint32(len(footer))), "PAR1"...),
	}
}

// A file of the table claims more than it has. It is neither merged nor read, and nobody runs out of memory.
func TestBombsAreNotRead(t *testing.T) {
	if !test.InChild(t, 2<<30) {
		return
	}
	for name, body := range bombs(t) {
		st := memstore.New(nil)
		w, err := writer.Open(t.Context(), st, fence.NewToken(1), nil)
		if err != nil {
			t.Fatal(err)
		}
		f, err := w.CreateFile(t.Context(), ".parquet", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(body); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := w.CommitFiles(t.Context(), manifest.Edit{Add: []manifest.File{f.File()}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r, err := reader.Open(t.Context(), st, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := r.Snapshot(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for of, err := range s.Files(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			file, err := s.Open(t.Context(), of)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := readAll(file); err == nil || !strings.HasPrefix(err.Error(), "delta: ") {
				t.Errorf("%s: read: %v", name, err)
			}
			_, _, err = merge(t.Context(), io.Discard, []rewrite.Input{{File: of, Data: file}})
			if err == nil || !strings.Contains(err.Error(), of.Key) {
				t.Errorf("%s: merged: %v", name, err)
			}
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
