//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
)

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "orders")
	if err != nil {
		log.Fatal(err)
	}
	st, err := dirstore.Open(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if _, err := st.Put(ctx, "lock/1.json", []byte("mine"), &store.PutOptions{If: store.IfAbsent()}); err != nil {
		log.Fatal(err)
	}
	_, err = st.Put(ctx, "lock/1.json", []byte("no, mine"), &store.PutOptions{If: store.IfAbsent()})
	fmt.Println(errors.Is(err, store.ErrPrecondition))

	// An object is a file.
	body, err := os.ReadFile(filepath.Join(dir, "lock", "1.json"))
	fmt.Println(string(body), err)
	_ = os.RemoveAll(dir)
	// Output:
	// true
	// mine <nil>
}
