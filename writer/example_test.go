package writer_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// A successor takes over. Whatever the first writer does from then on, it commits
// nothing any more.
func ExampleOpen() {
	ctx := context.Background()
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/orders")

	first, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer first.Close(ctx)
	offset, err := first.Append(ctx, [][]byte{[]byte("a"), []byte("b")}, writer.Cursor([]byte("line 2")))
	fmt.Println("at", offset, err)

	second, err := writer.Open(ctx, st, fence.NewToken(2), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Close(ctx)
	fmt.Printf("goes on at %d, from %s\n", second.Recovered().Offset, second.Recovered().Cursor)

	_, err = first.Append(ctx, [][]byte{[]byte("c")})
	fmt.Println("fenced:", errors.Is(err, writer.ErrFenced), "lost for certain:", errors.Is(err, writer.ErrNotCommitted))
	// Output:
	// at 0 <nil>
	// goes on at 2, from line 2
	// fenced: true lost for certain: true
}

// Futures keep the pipeline full: many objects are in flight at once, and a full
// pipeline puts what waits into one.
func ExampleWriter_AppendAsync() {
	ctx := context.Background()
	w, err := writer.Open(ctx, memstore.New(nil), fence.NewToken(1), &writer.Options{Concurrency: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	var last writer.Future
	for i := range 1000 {
		// It waits only while there is no room.
		last, err = w.AppendAsync(ctx, [][]byte{fmt.Append(nil, i)}, writer.Cursor(fmt.Append(nil, i+1)))
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	offset, err := last.Wait(ctx) // acknowledgement is in order, so this says it of all
	fmt.Println(offset, err)
	fmt.Println(w.Close(ctx))
	// Output:
	// 999 <nil>
	// <nil>
}

// A large object goes to the store by itself; the log entry that refers to it is
// committed after it is durable, with the records and the cursor in order.
func ExampleWriter_CommitFiles() {
	ctx := context.Background()
	w, err := writer.Open(ctx, memstore.New(nil), fence.NewToken(1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer w.Close(ctx)
	f, err := w.CreateFile(ctx, ".csv", 20)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Abort() // without effect once it is complete
	for i := range 3 {
		if _, err := fmt.Fprintf(f, "line %d\n", i); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := f.Close(); err != nil {
		fmt.Println(err)
		return
	}
	file := f.File()
	file.Records = 3
	err = w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{file}}, writer.Cursor([]byte("line 3")))
	fmt.Println("added", file.Size, "bytes:", err)

	err = w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{file}})
	fmt.Println("once more:", errors.Is(err, writer.ErrConflict))
	// Output:
	// added 21 bytes: <nil>
	// once more: true
}

// Commits that wait at the same time share an object of the log, and so a request. Each is
// still all or nothing.
func ExampleWriter_CommitFilesAsync() {
	ctx := context.Background()
	w, err := writer.Open(ctx, memstore.New(nil), fence.NewToken(1), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	var last writer.Future
	for day := range 3 {
		// It waits only while there is no room.
		last, err = w.CommitFilesAsync(ctx, manifest.Edit{Properties: map[string]string{"day": fmt.Sprint(day)}})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	_, err = last.Wait(ctx) // commits are acknowledged in order, so this says it of all
	fmt.Println(err)
	fmt.Println(w.Close(ctx))
	// Output:
	// <nil>
	// <nil>
}
