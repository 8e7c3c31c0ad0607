package gcsstore

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/httptransport"

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
