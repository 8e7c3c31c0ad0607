package s3store_test

import (
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/storetest"
)

// Real servers run the whole suite in package integration.
func TestConformance(t *testing.T) {
	srv := start(t, nil)
	storetest.Run(t, func(tb storetest.TB) store.Store {
		st, err := store.Open(tb.Context(), srv.StoreURL())
		if err != nil {
			tb.Fatalf("open: %v", err)
		}
		return st
	}, &storetest.Options{Quick: true})
}
