package azurestore

import (
	"context"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

const hintCredentials = "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or log in: az login, a managed identity, AZURE_CLIENT_ID and the rest"

// tokens marks the errors of getting a token, so that they are told from an
// answer of the store.
type tokens struct {
	from azcore.TokenCredential
	had  atomic.Bool
}

func (t *tokens) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := t.from.GetToken(ctx, options)
	if err != nil {
		return token, &loginError{renewing: t.had.Load(), err: err}
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
		return "azurestore: renewing the credentials: " + e.err.Error()
	}
	return "azurestore: no credentials: " + e.err.Error()
}

func (e *loginError) Unwrap() error { return e.err }

// NonRetriable tells the SDK not to ask again by itself.
func (e *loginError) NonRetriable() {}
