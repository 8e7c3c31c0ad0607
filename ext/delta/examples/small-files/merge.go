package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/reader"
)

// readBuffer is how much of a column is fetched at once. Each read of a file in an object
// store is a request, so the default of 4 KiB would cost thousands.
const readBuffer = 1 << 20

// readMemory is what the rows of a file may take. Somebody else may have written the file.
const readMemory = 256 << 20

// open opens a file as Parquet.
func open(f *reader.File) (*parquet.File, error) {
	if err := delta.CheckParquet(f, f.Size(), readMemory); err != nil {
		return nil, err
	}
	return parquet.OpenFile(f, f.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true), parquet.ReadBufferSize(readBuffer))
}

// merge writes the rows of some Parquet files into one. All must have the same columns. It returns no
// Meta: the new file has that of the old ones, with the values of their partition.
func merge(_ context.Context, out io.Writer, in []rewrite.Input) (records uint64, meta map[string]string, err error) {
	var groups []parquet.RowGroup
	for _, f := range in {
		file, err := open(f.Data)
		if err != nil {
			return 0, nil, fmt.Errorf("%s: %w", f.Key, err)
		}
		groups = append(groups, file.RowGroups()...)
	}
	all, err := parquet.MergeRowGroups(groups)
	if err != nil {
		return 0, nil, err
	}
	rows := all.Rows()
	defer func() { err = errors.Join(err, rows.Close()) }()
	w := parquet.NewWriter(out, all.Schema(), parquet.Compression(&parquet.Zstd))
	n, err := parquet.CopyRows(w, rows)
	return uint64(n), nil, errors.Join(err, w.Close())
}
