package rewrite_test

import (
	"context"
	"fmt"
	"io"

	"github.com/fencepost/fencepost/ext/rewrite"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// Ten small files of CSV become one. For Parquet the function reads row groups from each
// Data, which is an io.ReaderAt with a size, and writes them with a Parquet writer.
//
// Within fencepost.Run, run it beside the work: go rewriter.Run(ctx), with the work's context
// and the session's Writer.
func ExampleRewriter_Once() {
	ctx := context.Background()
	st := memstore.New(nil)
	w, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		panic(err)
	}
	defer w.Close(ctx)
	for i := range 10 {
		f, err := w.CreateFile(ctx, ".csv", 0)
		if err != nil {
			panic(err)
		}
		if _, err := fmt.Fprintf(f, "line %d\n", i); err != nil {
			panic(err)
		}
		if err := f.Close(); err != nil {
			panic(err)
		}
		file := f.File()
		file.Records = 1
		if err := w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{file}}); err != nil {
			panic(err)
		}
	}
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	concat := func(_ context.Context, out io.Writer, in []rewrite.Input) (records uint64, meta map[string]string, err error) {
		for _, f := range in {
			if _, err := io.Copy(out, f.Data); err != nil {
				return 0, nil, err
			}
			records += f.Records
		}
		return records, nil, nil
	}
	rewriter, err := rewrite.New(w, r, concat, nil)
	if err != nil {
		panic(err)
	}
	done, err := rewriter.Once(ctx)
	for _, d := range done {
		replaces, rerr := d.File.Replaces()
		fmt.Println(d.File.Records, "records;", d.File.Size, "bytes; in place of", len(replaces), "files", rerr)
	}
	fmt.Println(err)
	// Output:
	// 10 records; 70 bytes; in place of 10 files <nil>
	// <nil>
}
