package store_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

// Two writers want the same key. The one that loses is told whose bytes are
// there.
func ExampleCreate() {
	ctx := context.Background()
	st := memstore.New(nil)
	_, err := store.Create(ctx, st, "lock/1.json", []byte("a, nonce 71"), nil)
	fmt.Println(store.OutcomeOf(err))

	_, err = store.Create(ctx, st, "lock/1.json", []byte("b, nonce 15"), nil)
	var conflict *store.ConflictError
	if errors.As(err, &conflict) {
		fmt.Printf("%v: %s\n", store.OutcomeOf(err), conflict.Body)
	}
	// Output:
	// applied
	// refused: a, nonce 71
}

// A swap names the version that it replaces; whoever comes with an old one is
// refused.
func ExampleSwap() {
	ctx := context.Background()
	st := memstore.New(nil)
	first, _ := store.Create(ctx, st, "lock/1.json", []byte("held, nonce 1"), nil)
	_, err := store.Swap(ctx, st, "lock/1.json", []byte("held, nonce 2"), first.Version, nil)
	fmt.Println(store.OutcomeOf(err))
	_, err = store.Swap(ctx, st, "lock/1.json", []byte("expired, nonce 3"), first.Version, nil)
	fmt.Println(store.OutcomeOf(err))
	// Output:
	// applied
	// refused
}

func ExampleOpen() {
	_, err := store.Open(context.Background(), "gs://bucket")
	fmt.Println(err)
	// Output: store: open "gs://bucket": invalid request (the driver for gs:// is not linked in; add: import _ "github.com/fencepost/fencepost/store/gcsstore")
}

func ExampleSub() {
	ctx := context.Background()
	bucket := memstore.New(nil)
	orders, _ := store.Sub(bucket, "team/orders")
	_, _ = orders.Put(ctx, "lock/1.json", nil, &store.PutOptions{If: store.IfAbsent()})
	for info := range bucket.List(ctx, "", nil) {
		fmt.Println(info.Key)
	}
	// Output: team/orders/lock/1.json
}
