package fencepost_test

import (
	"context"
	"fmt"
	"log"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/compactor"
	"github.com/fencepost/fencepost/reader"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/writer"
)

// words are where the records come from; they can begin anywhere.
func words(from int) []string {
	return strings.Fields("one two three four five")[from:]
}

// The whole of it: whoever runs this, on however many machines, exactly one at a
// time writes, and each goes on where the one before ended.
func Example() {
	ctx := context.Background()

	st, err := store.Open(ctx, "mem://orders") // or s3://bucket/orders, file:///var/lib/orders
	if err != nil {
		log.Fatal(err)
	}
	err = fencepost.Run(ctx, st, nil, func(ctx context.Context, s *fencepost.Session) error {
		done, _ := strconv.Atoi(string(s.Recovered().Cursor)) // where the last leader's work ends
		for _, word := range words(done) {
			done++
			cursor := writer.Cursor([]byte(strconv.Itoa(done)))
			// One append is one atom: the record and the cursor, or neither.
			if _, err := s.AppendAsync(ctx, [][]byte{[]byte(word)}, cursor); err != nil {
				return err
			}
		}
		return s.Flush(ctx) // nil: all of it is in the history, for ever
	})
	if err != nil {
		log.Fatal(err)
	}

	r, err := reader.Open(ctx, st, nil)
	if err != nil {
		log.Fatal(err)
	}
	for rec, err := range r.Read(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(rec.Offset, string(rec.Value))
	}
	// Output:
	// 0 one
	// 1 two
	// 2 three
	// 3 four
	// 4 five
}

// A compactor is a background job of its own, or a goroutine beside the leader.
// This one does what there is to do, once.
func Example_compact() {
	ctx := context.Background()
	st, err := store.Open(ctx, "mem://orders")
	if err != nil {
		log.Fatal(err)
	}
	c, err := compactor.New(st, nil)
	if err != nil {
		log.Fatal(err)
	}
	report, err := c.Once(ctx) // or c.Run(ctx), until ctx ends
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(report.Records, "records in", report.Segments, "segment")
	// Output: 5 records in 1 segment
}
