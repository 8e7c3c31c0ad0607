//go:build integration

package azurestore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/internal/test/servers"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

func TestConformance(t *testing.T) {
	cloudtest.Conformance(t, servers.Start(t, servers.Azurite).URL("storetest"), !test.Whole())
}

func TestProbeAccepts(t *testing.T) {
	cloudtest.Probe(t, servers.Start(t, servers.Azurite).URL("probe"))
}

func TestMissingBucketIsNamed(t *testing.T) {
	s := servers.Start(t, servers.Azurite)
	s.Bucket = "no-such-bucket"
	cloudtest.NoBucket(t, s.URL("orders"), s.Bucket, "put", "get", "list", "delete")
}

func TestDeadServerTellsNothing(t *testing.T) {
	s := servers.Start(t, servers.Azurite)
	cloudtest.DeadServer(t, s.URL("orders"), s.Kill, s.Restart)
}

func TestWrongKeyIsDenied(t *testing.T) {
	s := servers.Start(t, servers.Azurite)
	const wrong = "bm90IHRoZSBrZXk="
	t.Setenv("AZURE_STORAGE_KEY", wrong)
	st := cloudtest.Open(t, s.URL("orders"))
	_, put := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
	_, _, read := cloudtest.Get(t, st, "k", nil)
	for op, err := range map[string]error{"put": put, "get": read, "list": cloudtest.ListErr(t, st)} {
		if !errors.Is(err, store.ErrDenied) || strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %v and no key", op, err, store.ErrDenied)
		}
	}
}
