package reader_test

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store/memstore"
)

// A program applies the edits of the table elsewhere, each once: Edit.Number says which ones it has.
func ExampleReader_Table() {
	ctx := context.Background()
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/orders")
	fillTable(ctx, st, "line 1\nline 2\n")
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	table := r.Table()
	edits, err := table.Read(ctx)
	if err != nil {
		panic(err)
	}
	for _, e := range edits {
		for _, f := range e.Change.Add {
			fmt.Println("edit", e.Number, "adds a file of", f.Size, "bytes")
		}
	}
	edits, err = table.Read(ctx)
	fmt.Println(len(edits), "new edits", err)
	// Output:
	// edit 1 adds a file of 14 bytes
	// 0 new edits <nil>
}
