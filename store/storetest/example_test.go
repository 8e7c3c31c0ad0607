package storetest_test

import (
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/storetest"
)

// A driver's own package calls Run from a test. Here all clients are one value;
// a driver over a network opens a connection for each.
func ExampleRun() {
	_ = func(t *testing.T) {
		st := memstore.New(nil)
		storetest.Run(t, func(storetest.TB) store.Store { return st }, &storetest.Options{Quick: true})
	}
}
