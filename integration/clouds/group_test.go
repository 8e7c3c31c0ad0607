//go:build integration

package clouds_test

import (
	"testing"

	"github.com/fencepost/fencepost/clock"
	"github.com/fencepost/fencepost/ext/group/grouptest"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store"
	_ "github.com/fencepost/fencepost/store/azurestore"
	_ "github.com/fencepost/fencepost/store/gcsstore"
)

// A group on Azure Blob Storage and on Google Cloud Storage, as far as their servers for tests go.
func TestGroup(t *testing.T) {
	for _, kind := range []*servers.Kind{servers.Azurite, servers.FakeGCS} {
		t.Run(kind.Name, func(t *testing.T) {
			st, err := store.Open(t.Context(), servers.Start(t, kind).URL("group"))
			if err != nil {
				t.Fatal(err)
			}
			grouptest.Run(t, st, clock.System())
		})
	}
}
