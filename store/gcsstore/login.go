package gcsstore

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
	"cloud.google.com/go/storage"
)

const hintCredentials = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login, or run where a service account is attached; " +
	"an emulator needs none: add ?endpoint=http://…"

// login adds the application default credentials to what goes through base.
func login(_ context.Context, base http.RoundTripper) (http.RoundTripper, error) {
	found, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{storage.ScopeReadWrite}})
	if err != nil {
		return nil, fmt.Errorf("gcsstore: no credentials: %w", err)
	}
	found.TokenProvider = &tokens{from: found.TokenProvider}
	client, err := httptransport.NewClient(&httptransport.Options{Credentials: found, BaseRoundTripper: base})
	if err != nil {
		return nil, fmt.Errorf("gcsstore: the credentials cannot be used: %w", err)
	}
	return client.Transport, nil
}

// tokens marks the errors of getting a token, so that they are told from an
// answer of the store.
type tokens struct {
	from auth.TokenProvider
	had  atomic.Bool
}

func (t *tokens) Token(ctx context.Context) (*auth.Token, error) {
	token, err := t.from.Token(ctx)
	if err != nil {
		return nil, &loginError{renewing: t.had.Load(), err: err}
	}
	t.had.Store(true)
	return token, nil
}

// loginError says that no token was to be had, so that nothing was sent.
type loginError struct {
	renewing bool // there was one before
	err      error
}

func (e *loginError) Error() string {
	if e.renewing {
		return "gcsstore: renewing the credentials: " + e.err.Error()
	}
	return "gcsstore: no credentials: " + e.err.Error()
}

func (e *loginError) Unwrap() error { return e.err }
