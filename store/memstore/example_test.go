package memstore_test

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

func Example() {
	ctx := context.Background()
	st := memstore.New(nil)

	_, err := st.Put(ctx, "lock/1", []byte("a"), &store.PutOptions{If: store.IfAbsent()})
	fmt.Println(store.OutcomeOf(err))
	_, err = st.Put(ctx, "lock/1", []byte("b"), &store.PutOptions{If: store.IfAbsent()})
	fmt.Println(store.OutcomeOf(err))
	// Output:
	// applied
	// refused
}
