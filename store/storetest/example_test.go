package storetest_test

import (
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/storetest"
)

// A driver's own package calls Run from a test. Each client is one more opened store: here it
// shares the directory with the others, and nothing else.
func ExampleRun() {
	_ = func(t *testing.T) {
		dir := t.TempDir()
		storetest.Run(t, func(tb storetest.TB) store.Store {
			st, err := dirstore.Open(dir, nil)
			if err != nil {
				tb.Fatalf("Open: %v", err)
			}
			// If it must be closed: t.Cleanup(func() { st.Close() }), with the t of the test.
			return st
		}, &storetest.Options{Quick: true})
	}
}
