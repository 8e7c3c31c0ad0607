package memstore_test

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
)

func Example() {
	ctx := context.Background()
	st := memstore.New()

	_, err := st.Put(ctx, "lock/1", []byte("a"), store.IfAbsent)
	fmt.Println(store.OutcomeOf(err))
	_, err = st.Put(ctx, "lock/1", []byte("b"), store.IfAbsent)
	fmt.Println(store.OutcomeOf(err))
	// Output:
	// applied
	// refused
}
