//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package dirstore_test

import (
	"testing"

	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/dirstore"
	"github.com/fencepost/fencepost/store/storetest"
)

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	storetest.Run(t, func(tb storetest.TB) store.Store {
		st, err := dirstore.Open(dir, nil)
		if err != nil {
			tb.Fatalf("Open: %v", err)
		}
		return st
	}, &storetest.Options{Quick: true}) // the disk decides how long a round takes
}
