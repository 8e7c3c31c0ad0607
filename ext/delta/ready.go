package delta

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
)

// WriteParquet takes a Parquet file that is complete, of size bytes, such as one that Arrow has made.
// It becomes one file of the table as it is, whatever its size, and [Writer.Commit] commits it with the
// rows of [Writer.Write]. values are those of the columns by which the table is partitioned, for all rows of the
// file, as WriterOptions.Partition returns them. A file without rows is left out.
//
// The file may have columns that T lacks, and lack some of T's. Columns that T or an earlier such file
// has must have the same types. If WriterOptions.Table is given, they must fit the table too, and so must
// values.
//
// Errors: [ErrSchema], and an error that says that the file is no Parquet file. After these two the
// Writer goes on, for nothing was written. After others it is useless, as after those of Write.
func (w *Writer[T]) WriteParquet(ctx context.Context, file io.ReaderAt, size int64, values map[string]string) error {
	if w.err != nil {
		return w.err
	}
	f, err := readReady(file, size)
	if err != nil {
		return err
	}
	all, err := w.all.merge(f.Schema)
	if err != nil {
		return err
	}
	if w.table != nil {
		if err := errors.Join(w.table.fits(f.Schema), w.table.takes(values)); err != nil {
			return err
		}
	}
	if f.Rows == 0 {
		return nil
	}
	w.all = all
	w.err = w.ready(ctx, io.NewSectionReader(file, 0, size), f.Rows, values)
	return w.err
}

// ready uploads a file.
func (w *Writer[T]) ready(ctx context.Context, body *io.SectionReader, rows int64, values map[string]string) error {
	out, err := w.log.CreateFile(ctx, ".parquet", body.Size())
	if err != nil {
		return err
	}
	n, err := io.Copy(out, body)
	if err == nil && n != body.Size() {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		out.Abort()
		return fmt.Errorf("delta: %s: %w", out.Key(), err)
	}
	if err := out.Close(); err != nil {
		return err
	}
	file := out.File()
	file.Records, file.Meta = uint64(rows), maps.Clone(values)
	w.done = append(w.done, file)
	return nil
}

// readReady reads the footer of a file that is not in a store yet.
func readReady(file io.ReaderAt, size int64) (*Footer, error) {
	notParquet := func(err error) error {
		return fmt.Errorf("delta: what WriteParquet got is no Parquet file: %w; give it a file that is complete", err)
	}
	end, err := endOf(file, size)
	if err != nil {
		return nil, notParquet(err)
	}
	f, err := decodeFooter(end, size)
	if err != nil && !errors.Is(err, ErrSchema) {
		return nil, notParquet(err)
	}
	return f, err
}
