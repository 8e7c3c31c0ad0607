package memstore_test

import (
	"testing"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/memstore"
	"github.com/fencepost/fencepost/store/storetest"
)

func TestConformance(t *testing.T) {
	for name, opts := range map[string]*memstore.Options{
		"counted versions": nil,
		"content versions": {ContentVersions: true},
		"seeded listings":  {Seed: 7},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New(opts)
			storetest.Run(t, func(storetest.TB) store.Store { return st }, &storetest.Options{Quick: opts != nil || !test.Whole()})
			if n, size := st.Len(); n != 0 || size != 0 {
				t.Errorf("the suite left %d objects of %d bytes behind", n, size)
			}
		})
	}
}
