package gcsstore

import (
	"context"
	"fmt"
	"net/http"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
	"cloud.google.com/go/storage"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

const hintCredentials = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login, or run where a service account is attached; " +
	"an emulator needs none: add ?endpoint=http://…"

// login returns a transport that adds the application default credentials.
func login(_ context.Context, base http.RoundTripper) (http.RoundTripper, error) {
	found, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{storage.ScopeReadWrite}, Client: cloud.Credentials()})
	if err != nil {
		return nil, fmt.Errorf("gcsstore: no credentials: %w", err)
	}
	found.TokenProvider = &tokens{from: found.TokenProvider, login: cloud.Login{Driver: "gcsstore"}}
	client, err := httptransport.NewClient(&httptransport.Options{Credentials: found, BaseRoundTripper: base})
	if err != nil {
		return nil, fmt.Errorf("gcsstore: the credentials cannot be used: %w", err)
	}
	return client.Transport, nil
}

// tokens marks the errors of getting a token, so that they can be told from an answer of
// the store.
type tokens struct {
	from  auth.TokenProvider
	login cloud.Login
}

func (t *tokens) Token(ctx context.Context) (*auth.Token, error) {
	token, err := t.from.Token(ctx)
	if err := t.login.Note(err); err != nil {
		return nil, err
	}
	return token, nil
}
