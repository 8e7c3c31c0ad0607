package delta

import (
	"fmt"
	"strings"
	"testing"

	deltas "github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/format"
)

// A publisher reads its own checkpoint, also if all files are alike in many partition columns, or if the
// schema is as long as it can be.
func TestOwnCheckpointIsReadable(t *testing.T) {
	for columns, files := range map[int]int{1: 2000, 20: 1000, 100: 15_002} {
		s := small()
		if all := deep(0, 4000, strings.Repeat("x", 450)); len(all.String()) > maxSchema {
			t.Fatal(len(all.String()))
		} else {
			s.meta.Schema = all.String()
		}
		day, log := "1", s.files["1/a.parquet"].log
		for i := range files {
			f := &file{path: fmt.Sprintf("00000000000000000001/%08x-1234-4000-8000-%012x.parquet", i*2654435761, i*7919*104729), size: int64(1234 + i), modified: 17e11 + int64(i)*1000, stats: fmt.Sprintf(`{"numRecords":%d}`, i), log: log, partition: map[string]*string{}}
			for k := range columns {
				f.partition[fmt.Sprint("p", k)] = &day
			}
			s.files[f.path] = f
		}
		body, err := encodeCheckpoint(s, 0)
		if err == nil && columns < 100 { // the checksum of all takes long
			s.sum = s.total()
			var got *state
			if got, err = decodeCheckpoint(3, body); err == nil && got.sum != s.sum {
				t.Errorf("%d columns: another state", columns)
			}
		}
		if err != nil {
			t.Errorf("%d columns, %d bytes: %v", columns, len(body), err)
		}
	}
}

// One that could not be read is not written.
//
// guard:delta-checkpoint-read. Without this check: a table has 500 partition columns and a million
// files; the publisher writes a checkpoint, and a week later deletes the commits before it; nobody can
// read the checkpoint, or the table.
func TestCheckpointThatCannotBeRead(t *testing.T) {
	s := small()
	s.meta.Schema = strings.Repeat("x", maxText+1)
	if _, err := encodeCheckpoint(s, 0); err == nil || !strings.Contains(err.Error(), "could not be read again") {
		t.Errorf("got %v", err)
	}
}

// Spark writes texts by what they share with the one before.
func TestTextsWithPrefixes(t *testing.T) {
	page := func(texts ...string) []byte {
		all, offsets := "", []uint32{0}
		for _, s := range texts {
			all += s
			offsets = append(offsets, uint32(len(all)))
		}
		b, err := (&deltas.ByteArrayEncoding{}).EncodeByteArray(nil, []byte(all), offsets)
		if err != nil {
			t.Fatal(err)
		}
		defs := append(append(run(4, 0), run(2, 1)...), run(1, 0)...)
		return withPages(t, "add.path", format.Uncompressed, nil, page2(smallRows, 0, format.DeltaByteArray, nil, defs, b)...)
	}
	got, err := decodeCheckpoint(3, page("1/a.parquet", "1/b.parquet"))
	if err != nil || got.proof() != small().proof() {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = decodeCheckpoint(3, page("1/c", "1/c.parquet")); err != nil || got.files["1/c"] == nil || got.files["1/c.parquet"] == nil {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = decodeCheckpoint(3, withPages(t, "add.path", format.Uncompressed, nil, page2(smallRows, 0, format.ByteStreamSplit, nil, run(smallRows, 1), nil)...))
	if err == nil || !strings.Contains(err.Error(), "BYTE_STREAM_SPLIT, which is not read") {
		t.Errorf("got %v", err)
	}
}
