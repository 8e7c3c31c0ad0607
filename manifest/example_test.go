package manifest_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/fencepost/fencepost/manifest"
	"github.com/fencepost/fencepost/store/memstore"
)

// What was decided when the log was made, and is the same for all that use it.
func ExampleReadFormat() {
	ctx := context.Background()
	st := memstore.New(nil) // or store.Open(ctx, "s3://bucket/orders")
	_, err := manifest.ReadFormat(ctx, st, nil)
	fmt.Println(errors.Is(err, manifest.ErrNotInitialized))

	if _, err := manifest.Init(ctx, st, &manifest.InitOptions{Grace: time.Hour}); err != nil {
		log.Fatal(err)
	}
	f, err := manifest.ReadFormat(ctx, st, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("version", f.Version, "grace", f.Grace)
	fmt.Println("the store was probed:", f.Probe != nil)
	// Output:
	// true
	// version 1 grace 1h0m0s
	// the store was probed: true
}
