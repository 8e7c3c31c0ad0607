package inspect_test

import (
	"context"
	"fmt"
	"log"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/inspect"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/writer"
)

// A monitor asks where a log ends, and what a compactor has not folded yet.
func Example() {
	ctx, st := context.Background(), memstore.New(nil)
	w, err := writer.Open(ctx, st, fence.NewToken(1), nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := w.Append(ctx, [][]byte{[]byte("a"), []byte("b")}); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(ctx); err != nil {
		log.Fatal(err)
	}

	l, err := inspect.Open(ctx, st, nil)
	if err != nil {
		log.Fatal(err)
	}
	look, err := l.Look(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d records up to slot %v, %d not folded\n", look.End, look.Tail, look.End-look.FloorOffset)
	for h, err := range l.Unfolded(ctx, &look.State) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("slot %v: seal %t, %d records from offset %d\n", h.Slot, h.Seal, h.Records, h.Offset)
	}
	objects := 0
	for info, err := range store.ListAll(ctx, st, inspect.Data.Prefix(), nil, nil) {
		if err != nil {
			log.Fatal(err)
		}
		if inspect.Parse(info.Key).Kind == inspect.Data {
			objects++
		}
	}
	fmt.Println(objects, "log objects")
	// Output:
	// 2 records up to slot 1/2, 2 not folded
	// slot 0/1: seal true, 0 records from offset 0
	// slot 1/1: seal false, 2 records from offset 0
	// 2 log objects
}
