package delta_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/fencepost/fencepost/ext/delta"
	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// Sale is a row of a table.
type Sale struct {
	ID    int64     `parquet:"id"`
	Item  string    `parquet:"item"`
	Price float64   `parquet:"price"`
	At    time.Time `parquet:"at,timestamp(microsecond)"`
}

func Example() {
	ctx := context.Background()
	st, err := store.Open(ctx, "mem://sales") // or s3://bucket/sales
	if err != nil {
		log.Fatal(err)
	}
	if _, err := manifest.Init(ctx, st, nil); err != nil {
		log.Fatal(err)
	}
	// Whoever leads writes rows. fencepost.Run gives a session, which is such a writer.
	w, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := delta.NewWriter(ctx, w, &delta.WriterOptions[Sale]{})
	if err != nil {
		log.Fatal(err)
	}
	if err := rows.Write(ctx, []Sale{{ID: 1, Item: "tea", Price: 2.5}, {ID: 2, Item: "milk", Price: 1}}); err != nil {
		log.Fatal(err)
	}
	// Rows and cursor are one atom.
	if err := rows.Commit(ctx, writer.Cursor([]byte("offset 2"))); err != nil {
		log.Fatal(err)
	}

	rows.Close()

	// Anybody publishes: as a job, or with Run beside the leader.
	table, source, err := delta.Beside(st)
	if err != nil {
		log.Fatal(err)
	}
	p, err := delta.Open(ctx, table, []delta.Source{source}, &delta.Options{Name: "sales"})
	if err != nil {
		log.Fatal(err)
	}
	r, err := p.Publish(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("version %d has %d file; %v\n", r.Version, r.Files, r.Err())
	// Output: version 1 has 1 file; <nil>
}

// A file that some other program has made, such as Arrow, becomes part of the table as it is.
func ExampleWriter_WriteParquet() {
	ctx := context.Background()
	st, err := store.Open(ctx, "mem://ready")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := manifest.Init(ctx, st, nil); err != nil {
		log.Fatal(err)
	}
	w, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		log.Fatal(err)
	}
	rows, err := delta.NewWriter(ctx, w, &delta.WriterOptions[Sale]{})
	if err != nil {
		log.Fatal(err)
	}
	var made bytes.Buffer
	if err := parquet.Write(&made, []Sale{{ID: 1, Item: "tea"}, {ID: 2, Item: "milk"}}); err != nil {
		log.Fatal(err)
	}
	file := bytes.NewReader(made.Bytes()) // or an *os.File
	if err := rows.WriteParquet(ctx, file, file.Size(), nil); err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows.Pending(), "rows")
	if err := rows.Commit(ctx, writer.Cursor([]byte("file 1"))); err != nil {
		log.Fatal(err)
	}
	rows.Close()
	// Output: 2 rows
}

// A program that reads the files of a table, which somebody else may have written, bounds first what that may take.
func ExampleCheckParquet() {
	var made bytes.Buffer
	if err := parquet.Write(&made, []Sale{{ID: 1, Item: "tea"}}); err != nil {
		log.Fatal(err)
	}
	file := bytes.NewReader(made.Bytes())
	if err := delta.CheckParquet(file, file.Size(), 64<<20); err != nil {
		log.Fatal(err)
	}
	rows, err := parquet.Read[Sale](file, file.Size())
	fmt.Println(len(rows), err)
	// Output: 1 <nil>
}
