package kit

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// Uploader returns a function that makes a Parquet file of this machine one of the table of the log in st. A commit has to
// add it. If a Delta table is published beside the log, the file must fit it.
//
// It returns when its context ends: a file may be on a disk that hangs, and who uploads it leads meanwhile.
func (k *Kit) Uploader(st, files store.Store) func(ctx context.Context, w *writer.Writer, name string, values map[string]string) (manifest.File, error) {
	return func(ctx context.Context, w *writer.Writer, name string, values map[string]string) (manifest.File, error) {
		f, err := Patiently(ctx, k, "still reading and uploading "+name, func() (manifest.File, error) {
			return upload(ctx, st, files, w, name, values)
		})
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return f, err
	}
}

// noRow is the type of rows that are never written. A Writer wants one column, which the files may lack.
type noRow struct {
	None *bool `parquet:"_none,optional"`
}

func upload(ctx context.Context, st, files store.Store, w *writer.Writer, name string, values map[string]string) (manifest.File, error) {
	local, err := os.OpenFile(name, os.O_RDONLY|nonblocking, 0) // of a pipe it would wait for a writer
	if err != nil {
		return manifest.File{}, err
	}
	defer local.Close()
	info, err := local.Stat()
	if err == nil {
		err = Regular(info)
	}
	if err != nil {
		return manifest.File{}, err
	}
	table := files
	if table == nil {
		if table, _, err = delta.Beside(st); err != nil {
			return manifest.File{}, err
		}
	}
	d, err := delta.NewWriter(ctx, w, &delta.WriterOptions[noRow]{Table: table})
	if err != nil {
		return manifest.File{}, err
	}
	defer d.Close()
	if err := d.WriteParquet(ctx, local, info.Size(), values); err != nil {
		return manifest.File{}, err
	}
	done, err := d.Finish(ctx)
	switch {
	case err != nil:
		return manifest.File{}, err
	case len(done) == 0:
		return manifest.File{}, errors.New("it has no rows")
	}
	return done[0], nil
}

// Regular refuses what is no file that can be read from its end, such as a pipe.
func Regular(info os.FileInfo) error {
	if !info.Mode().IsRegular() {
		return errors.New("it is no regular file: Parquet is read from its end; write it to a file first")
	}
	return nil
}
