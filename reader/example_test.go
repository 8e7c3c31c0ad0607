package reader_test

import (
	"context"
	"fmt"
	"io"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// fill appends some records.
func fill(ctx context.Context, st store.Store, records ...string) {
	w, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		panic(err)
	}
	for _, r := range records {
		if _, err := w.Append(ctx, [][]byte{[]byte(r)}, writer.Cursor([]byte("behind "+r))); err != nil {
			panic(err)
		}
	}
	if err := w.Close(ctx); err != nil {
		panic(err)
	}
}

// A reader goes on where it was: the offset of the next record is kept where the
// results are.
func ExampleReader_Tail() {
	ctx := context.Background()
	st := memstore.New(nil)
	fill(ctx, st, "a", "b", "c")
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	next := uint64(1) // from an earlier run
	for rec, err := range r.Tail(ctx, next) {
		if err != nil {
			panic(err)
		}
		fmt.Println(rec.Offset, string(rec.Value))
		if next = rec.Offset + 1; next == 3 {
			break // it would wait for more
		}
	}
	// Output:
	// 1 b
	// 2 c
}

// A snapshot is the log at one moment; from its end Tail misses nothing.
func ExampleReader_Snapshot() {
	ctx := context.Background()
	st := memstore.New(nil)
	fill(ctx, st, "a", "b", "c")
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	s, err := r.Snapshot(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)
	for rec, err := range s.Records(ctx, 0) {
		fmt.Println(rec.Offset, string(rec.Value), err)
	}
	fmt.Println(s.End(), string(s.Cursor()))
	// Output:
	// 0 a <nil>
	// 1 b <nil>
	// 2 c <nil>
	// 3 behind c
}

// A backup pins the newest version under a name, copies what it names, and deletes the
// pin. Nothing that it names is deleted meanwhile.
func ExampleReader_Pin() {
	ctx := context.Background()
	st := memstore.New(nil)
	fill(ctx, st, "a", "b", "c")
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	pin, err := r.Pin(ctx, "backup-2026-11", 0, 0)
	if err != nil {
		panic(err)
	}
	s, err := r.Snapshot(ctx, &reader.SnapshotOptions{Version: pin.Version, Unpinned: true})
	if err != nil {
		panic(err)
	}
	for f, err := range s.Files(ctx) {
		fmt.Println(f.Key, err) // copy it
	}
	pins, err := r.Pins(ctx)
	if err != nil {
		panic(err)
	}
	for _, p := range pins {
		fmt.Println(p.Name, p.Version == s.Version(), p.Expired)
	}
	fmt.Println(r.Unpin(ctx, pin.Name))
	// Output:
	// backup-2026-11 true false
	// <nil>
}

// A file of the table is an io.ReaderAt with a size, which is what readers of Parquet and
// other formats with an index want. It stays while the snapshot is open.
func ExampleSnapshot_Open() {
	ctx := context.Background()
	st := memstore.New(nil)
	fillTable(ctx, st, "line 1\nline 2\n")
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	s, err := r.Snapshot(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)
	for f, err := range s.Files(ctx) {
		if err != nil {
			panic(err)
		}
		file, err := s.Open(ctx, f)
		if err != nil {
			panic(err)
		}
		last := make([]byte, 7)
		_, err = file.ReadAt(last, file.Size()-7)
		fmt.Printf("%d bytes, %q %v\n", file.Size(), last, err)
		all, err := io.ReadAll(file) // and compares the checksum
		fmt.Printf("%q %v\n", all, err)
	}
	// Output:
	// 14 bytes, "line 2\n" <nil>
	// "line 1\nline 2\n" <nil>
}

// fillTable commits a file.
func fillTable(ctx context.Context, st store.Store, content string) {
	w, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		panic(err)
	}
	f, err := w.CreateFile(ctx, ".csv", 0)
	if err != nil {
		panic(err)
	}
	defer f.Abort()
	if _, err := io.WriteString(f, content); err != nil {
		panic(err)
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
	if err := w.CommitFiles(ctx, manifest.Edit{Add: []manifest.File{f.File()}}); err != nil {
		panic(err)
	}
	if err := w.Close(ctx); err != nil {
		panic(err)
	}
}

// A job that works on a snapshot for hours stops when the pin is lost: then the files of the
// snapshot may be deleted.
func ExampleSnapshot_Lost() {
	ctx := context.Background()
	st := memstore.New(nil)
	fill(ctx, st, "a", "b", "c")
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		panic(err)
	}
	s, err := r.Snapshot(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer s.Close(ctx)
	select {
	case <-s.Lost():
		fmt.Println("begin again:", s.Err()) // reader.ErrPinLost, and why
	default:
		fmt.Println("the pin holds:", s.Err())
	}
	// Output:
	// the pin holds: <nil>
}
