package gcsstore

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/httptransport"

	"github.com/fencepost/fencepost/internal/test"
	"github.com/fencepost/fencepost/store/internal/cloud/cloudtest"
)

type provider struct{ err error }

func (p *provider) Token(context.Context) (*auth.Token, error) {
	return &auth.Token{Value: "x", Type: "Bearer", Expiry: time.Unix(1, 0)}, p.err // it is never kept
}

// Credentials that were never there are the request's fault; those that cannot
// be renewed just now may come back, and nothing was sent in either case.
func TestLoginErrors(t *testing.T) {
	from := &provider{}
	none := http.RoundTripper(roundTrip(func(*http.Request) (*http.Response, error) { return nil, errors.New("sent") }))
	client, err := httptransport.NewClient(&httptransport.Options{
		Credentials:      auth.NewCredentials(&auth.CredentialsOptions{TokenProvider: &tokens{from: from}, UniverseDomainProvider: googleapis}),
		BaseRoundTripper: none,
	})
	if err != nil {
		t.Fatal(err)
	}
	st, err := New(client, "bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	cloudtest.Logins(t, st, func(err error) { from.err = err }, "sent")
}

var googleapis = auth.CredentialsPropertyFunc(func(context.Context) (string, error) { return "googleapis.com", nil })

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return f(r)
}

// The metadata service of the machine gives the token, without a proxy. One that answers without end does not fill the memory.
func TestMachine(t *testing.T) {
	endless := false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/computeMetadata/v1/instance/service-accounts/default/token" || r.URL.Query().Get("scopes") == "" || r.Header.Get("Metadata-Flavor") != "Google" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)
		for piece := make([]byte, 1<<20); endless; {
			if _, err := w.Write(piece); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(srv.URL, "http://"))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("CLOUDSDK_CONFIG", t.TempDir())
	ask := func() (token string, err error) {
		rt, err := login(t.Context(), roundTrip(func(r *http.Request) (*http.Response, error) {
			token = r.Header.Get("Authorization")
			return nil, errors.New("sent")
		}))
		if err != nil {
			t.Fatal(err)
		}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://storage.googleapis.com/", nil)
		_, err = rt.RoundTrip(r) //nolint:bodyclose // it is always an error
		return token, err
	}
	if token, err := ask(); token != "Bearer t" || err == nil || err.Error() != "sent" {
		t.Errorf("%q, %v", token, err)
	}
	endless = true
	var err error
	test.Affords(t, 0, 0, 16<<20, func() { _, err = ask() })
	if err == nil || err.Error() == "sent" || len(err.Error()) > 2000 {
		t.Errorf("%.100v", err)
	}
}
