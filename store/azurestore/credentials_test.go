package azurestore_test

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store"
	"github.com/fencepost/fencepost/store/azurestore"
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

// A machine resumes, and its clock is behind: Azure answers 403 AuthenticationFailed to what the key signs. A holder tries again.
func TestSignatureOfAnOldClock(t *testing.T) {
	var code atomic.Value
	code.Store("AuthenticationFailed")
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if code := code.Load().(string); code != "" {
			fail(w, http.StatusForbidden, code)
			return
		}
		fail(w, http.StatusNotFound, "BlobNotFound")
	}))
	t.Cleanup(srv.Close)
	t.Setenv("AZURE_STORAGE_KEY", "a2V5")
	t.Setenv("AZURE_STORAGE_CONNECTION_STRING", "")
	st, err := store.Open(t.Context(), "az://box?account=acc&endpoint="+srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	get := func() error { _, err := st.Get(t.Context(), "k", nil); return err }
	if err := get(); !errors.Is(err, store.ErrDenied) {
		t.Errorf("never taken: %v", err)
	}
	code.Store("")
	if err := get(); !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	code.Store("AuthenticationFailed")
	_, err = st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	if store.OutcomeOf(err) != store.Unknown {
		t.Errorf("it was taken before: %v", err)
	}
	code.Store("AuthorizationPermissionMismatch")
	if err := get(); !errors.Is(err, store.ErrDenied) {
		t.Errorf("a question of rights: %v", err)
	}
}

// token is a credential that gives one token.
type token string

func (k token) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(k), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// The store refuses a token that the machine takes for valid. The library has read its files once, and others are there now.
func TestTokenRefused(t *testing.T) {
	var valid, given atomic.Value
	valid.Store("old")
	given.Store(token("old"))
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) {
			fail(w, http.StatusUnauthorized, "InvalidAuthenticationInfo")
			return
		}
		fail(w, http.StatusNotFound, "BlobNotFound")
	}))
	t.Cleanup(srv.Close)
	st, err := azurestore.WithTokens(srv.URL+"/acc/box", srv.Client().Transport, func() (azcore.TokenCredential, error) {
		return given.Load().(token), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	get := func() error { _, err := st.Get(t.Context(), "k", nil); return err }
	if err := get(); !errors.Is(err, store.ErrNotFound) {
		t.Fatal(err)
	}
	valid.Store("new")
	_, err = st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
	if store.OutcomeOf(err) != store.Unknown {
		t.Errorf("others may come: %v", err)
	}
	given.Store(token("new"))
	if err := get(); err == nil || store.Permanent(err) {
		t.Errorf("others are there: %v", err)
	}
	if err := get(); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("with others: %v", err)
	}
}
