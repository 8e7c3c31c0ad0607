//go:build integration

package azurestore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/fencepost/fencepost/integration/servers"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
	"github.com/fencepost/fencepost/store/probe"
	"github.com/fencepost/fencepost/store/storetest"
)

func open(t testing.TB, url string) store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestConformance(t *testing.T) {
	s := servers.Start(t, servers.Azurite)
	storetest.Run(t, func(tb storetest.TB) store.Store {
		// Each client opens connections of its own.
		st, err := store.Open(tb.Context(), s.URL("storetest"))
		if err != nil {
			tb.Fatalf("open: %v", err)
		}
		return st
	}, &storetest.Options{Quick: testing.Short()})
}

func TestProbeAccepts(t *testing.T) {
	url := servers.Start(t, servers.Azurite).URL("probe")
	st := open(t, url)
	report, err := probe.Run(t.Context(), st, &probe.Options{
		Open: func(ctx context.Context) (store.Store, error) { return store.Open(ctx, url) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(report)
	for _, promise := range []string{probe.Create, probe.CreateAtomic, probe.Swap, probe.SwapAtomic, probe.ListWrite} {
		if !slices.Contains(report.Kept, promise) {
			t.Errorf("the report does not say that %q is kept", promise)
		}
	}
	if !report.ConditionalUpload || report.Leftover != 0 {
		t.Errorf("conditional upload %t, %d objects left", report.ConditionalUpload, report.Leftover)
	}
}

func TestMissingBucketIsNamed(t *testing.T) {
	s := servers.Start(t, servers.Azurite)
	s.Bucket = "no-such-bucket"
	st := open(t, s.URL("orders"))
	_, put := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
	_, _, read := cloudtest.Get(t, st, "k", nil)
	for op, err := range map[string]error{"put": put, "get": read, "list": cloudtest.ListErr(t, st), "delete": st.Delete(t.Context(), "k")} {
		if !errors.Is(err, store.ErrNoBucket) || !strings.Contains(err.Error(), s.Bucket) {
			t.Errorf("%s: %v does not say that there is no bucket %s", op, err, s.Bucket)
		}
	}
}

// TestDeadServerTellsNothing: a write to a server that is gone has an unknown
// outcome, and is settled when the server is back.
func TestDeadServerTellsNothing(t *testing.T) {
	s := servers.Start(t, servers.Azurite)
	st := open(t, s.URL("orders"))
	s.Kill()
	_, err := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
	if err == nil || store.OutcomeOf(err) != store.Unknown {
		t.Errorf("outcome %v of %v, want unknown", store.OutcomeOf(err), err)
	}
	s.Restart()
	if _, err := store.Create(t.Context(), st, "k", []byte("v"), nil); err != nil {
		t.Error(err)
	}
}

func TestWrongKeyIsDenied(t *testing.T) {
	s := servers.Start(t, servers.Azurite)
	const wrong = "bm90IHRoZSBrZXk="
	t.Setenv("AZURE_STORAGE_KEY", wrong)
	st := open(t, s.URL("orders"))
	_, put := st.Put(t.Context(), "k", []byte("v"), &store.PutOptions{If: store.IfAbsent()})
	_, _, read := cloudtest.Get(t, st, "k", nil)
	for op, err := range map[string]error{"put": put, "get": read, "list": cloudtest.ListErr(t, st)} {
		if !errors.Is(err, store.ErrDenied) || strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %v and no key", op, err, store.ErrDenied)
		}
	}
}
