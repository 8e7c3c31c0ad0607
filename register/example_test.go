package register_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/fencepost/fencepost/fence"
	"github.com/fencepost/fencepost/register"
	"github.com/fencepost/fencepost/store/memstore"
)

// A leader keeps the name of the newest snapshot in one object. A zombie cannot set it back.
func Example() {
	ctx, st := context.Background(), memstore.New(nil)
	old, err := register.Open(ctx, st, "latest.json", fence.NewToken(1), nil) // the token of an election
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(old.Set(ctx, []byte("snapshot-17")))

	next, err := register.Open(ctx, st, "latest.json", fence.NewToken(2), nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", next.Value())
	fmt.Println(next.Set(ctx, []byte("snapshot-18")))
	fmt.Println(errors.Is(old.Set(ctx, []byte("snapshot-17b")), fence.ErrFenced))

	now, err := register.Read(ctx, st, "latest.json", nil) // anybody may read it
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s, set in epoch %d\n", now.Value, now.Epoch)
	// Output:
	// <nil>
	// snapshot-17
	// <nil>
	// true
	// snapshot-18, set in epoch 2
}
