package gcsstore

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/httptransport"

	"github.com/fencepost/fencepost/store"
)

type provider struct{ err error }

func (p *provider) Token(context.Context) (*auth.Token, error) {
	return &auth.Token{Value: "x", Type: "Bearer", Expiry: time.Unix(1, 0)}, p.err // it is never kept
}

// Credentials that were never there are the request's fault; those that cannot
// be renewed just now may come back, and nothing was sent in either case.
func TestLoginErrors(t *testing.T) {
	from := &provider{err: errors.New("no such account")}
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
	put := func() error {
		_, err := st.Put(t.Context(), "k", []byte("x"), &store.PutOptions{If: store.IfAbsent()})
		return err
	}
	if err := put(); store.OutcomeOf(err) != store.Rejected || !errors.Is(err, store.ErrDenied) || !strings.Contains(err.Error(), "no such account") {
		t.Errorf("never there: %v", err)
	}
	from.err = nil
	if err := put(); err == nil || !strings.Contains(err.Error(), "sent") {
		t.Errorf("there: %v", err)
	}
	from.err = errors.New("metadata server is away")
	if err := put(); store.OutcomeOf(err) != store.Unknown || store.Permanent(err) || !strings.Contains(err.Error(), "metadata server is away") {
		t.Errorf("away: %v", err)
	}
}

var googleapis = auth.CredentialsPropertyFunc(func(context.Context) (string, error) { return "googleapis.com", nil })

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		r.Body.Close()
	}
	return f(r)
}
