package compactor_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// numbers makes a log with some records.
func numbers(ctx context.Context, n int) store.Store {
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/orders")
	err := fencepost.Run(ctx, st, nil, func(ctx context.Context, w *fencepost.Session) error {
		for i := range n {
			if _, err := w.Append(ctx, [][]byte{fmt.Appendf(nil, "record %d", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	return st
}

// What would a compactor do now? Plan needs no permission to write.
func ExampleCompactor_Plan() {
	ctx := context.Background()
	c, err := compactor.New(numbers(ctx, 5), nil)
	if err != nil {
		log.Fatal(err)
	}
	plan, err := c.Plan(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("up to", plan.FoldObjects, "objects are folded, from", plan.Floor)
	fmt.Println(len(plan.Merges), "merges,", len(plan.Pins), "pins")
	// Output:
	// up to 6 objects are folded, from 0/1
	// 0 merges, 0 pins
}

// The records of a customer who has left are the first three. Nobody who opens the log later reads
// them. Their bytes go later: after the grace period, and when no pin holds them.
func ExampleCompactor_Truncate() {
	ctx := context.Background()
	st := numbers(ctx, 5)
	c, err := compactor.New(st, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := c.Once(ctx); err != nil { // only folded records can be given up
		log.Fatal(err)
	}
	if err := c.Truncate(ctx, 3); err != nil {
		log.Fatal(err)
	}
	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		log.Fatal(err)
	}
	s, err := r.Snapshot(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	for rec, err := range s.Records(ctx, s.First()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.Offset, string(rec.Value))
	}
	fmt.Println(s.Close(ctx))
	// Output:
	// 3 record 3
	// 4 record 4
	// <nil>
}
