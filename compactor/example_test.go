package compactor_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

// One pass, as a job that is started now and then. Of several at once one works and
// the others wait.
func ExampleCompactor_Once() {
	ctx := context.Background()
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/orders")
	err := fencepost.Run(ctx, st, nil, func(ctx context.Context, w *fencepost.Session) error {
		for _, word := range []string{"one", "two", "three"} {
			if _, err := w.Append(ctx, [][]byte{[]byte(word)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	c, err := compactor.New(st, &compactor.Options{Retain: compactor.Retain{Records: 1_000_000}})
	if err != nil {
		log.Fatal(err)
	}
	report, err := c.Once(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Records, "records are in", report.Segments, "segment")
	fmt.Println("the objects that they were in go after the grace period:", report.Pruned["data"])
	// Output:
	// 3 records are in 1 segment
	// the objects that they were in go after the grace period: 0
}

// A goroutine beside the one that writes, in each process that may lead. The compactors
// elect one of their own, so it need not run beside the leader.
func ExampleCompactor_Run() {
	ctx, stop := context.WithCancel(context.Background())
	st := memstore.New(nil)                                // or store.Open(ctx, "s3://bucket/orders")
	if _, err := manifest.Init(ctx, st, nil); err != nil { // a compactor makes no log
		log.Fatal(err)
	}
	c, err := compactor.New(st, &compactor.Options{MinObjects: 1000})
	if err != nil {
		log.Fatal(err)
	}
	compacted := make(chan error, 1)
	go func() { compacted <- c.Run(ctx) }()

	err = fencepost.Run(ctx, st, nil, func(ctx context.Context, w *fencepost.Session) error {
		for _, word := range []string{"one", "two", "three"} {
			if _, err := w.AppendAsync(ctx, [][]byte{[]byte(word)}); err != nil {
				return err
			}
		}
		return w.Flush(ctx)
	})
	if err != nil {
		log.Fatal(err)
	}
	stop()
	if err := <-compacted; err != nil { // nil: it has freed its lock
		log.Fatal(err)
	}

	// The next compactor does what is left.
	report, err := c.Once(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("folded up to record", report.FloorOffset)
	// Output:
	// folded up to record 3
}
