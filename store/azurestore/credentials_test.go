package azurestore_test

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
)

// Who gives out tokens answers without an end, with success or with an error. A request fails, and nobody runs out of memory.
func TestEndlessTokens(t *testing.T) {
	if !test.InChild(t, 2<<30) {
		return
	}
	for _, status := range []int{200, 400} {
		asked := false
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked = true
			w.WriteHeader(status)
			_, err := w.Write([]byte(`{"access_token":"`))
			for block := bytes.Repeat([]byte("x"), 1<<20); err == nil; {
				_, err = w.Write(block)
			}
		}))
		for _, name := range []string{"AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING"} {
			t.Setenv(name, "")
		}
		// The managed identity of an App Service.
		t.Setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
		t.Setenv("IDENTITY_ENDPOINT", srv.URL)
		t.Setenv("IDENTITY_HEADER", "x")
		st, err := store.Open(t.Context(), "az://box?account=fencepost")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		took := test.Allocated(func() { _, err = st.Get(ctx, "k", nil) })
		if err == nil || ctx.Err() != nil || took > 64<<20 || !asked {
			t.Errorf("%v; it took %d bytes", err, took)
		}
		t.Log(took, err)
		cancel()
		srv.Close()
	}
}
