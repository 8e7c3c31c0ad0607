package faultstore_test

import (
	"context"
	"fmt"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/faultstore"
	"github.com/fencepost/fencepost/store/memstore"
)

// A create whose reply is lost is settled by reading the key: it was applied.
func Example() {
	st := faultstore.New(memstore.New(nil), &faultstore.Options{Hook: faultstore.Script(
		faultstore.Rule{Kind: faultstore.Put, Prefix: "lock/", Fault: faultstore.Fault{Err: faultstore.ErrReset}},
	)})
	_, err := store.Create(context.Background(), st, "lock/1", []byte("nonce"), nil)
	fmt.Println(err, st.Counts().Of(faultstore.Put, "lock/"), st.Counts().Of(faultstore.Get, "lock/"))
	// Output: <nil> 1 1
}
