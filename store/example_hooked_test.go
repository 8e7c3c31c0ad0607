package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// Every request is told, with its key, its size, and how long it took.
func ExampleHooked() {
	ctx := context.Background()
	st := store.Hooked(memstore.New(nil), store.Hooks{Answered: func(a store.Answer) {
		fmt.Println(a.Op, a.Key, store.OutcomeOf(a.Err))
	}}, nil)
	_, _ = store.Create(ctx, st, "lock/1.json", []byte("a"), nil)
	_, _ = store.Create(ctx, st, "lock/1.json", []byte("b"), nil) // it is refused, and reads what is there
	// Output:
	// put lock/1.json applied
	// put lock/1.json refused
	// get lock/1.json applied
}

// A driver makes one attempt. What may be sent again, goes through Retry: reads, listings and deletions.
func ExampleRetry() {
	ctx := context.Background()
	slow := faultstore.New(memstore.New(nil), &faultstore.Options{Hook: faultstore.Script(faultstore.Rule{
		Kind: faultstore.Delete, Times: 2, Fault: faultstore.Fault{Err: &store.Error{Op: "delete", Status: 503}},
	})})
	tries := 0
	err := store.Retry(ctx, &store.SettleOptions{Attempt: 5 * time.Second}, func(ctx context.Context) error {
		tries++
		return slow.Delete(ctx, "tmp/old")
	})
	fmt.Println(err, "after", tries, "tries")
	// Output: <nil> after 3 tries
}
