package azurestore

import (
	"context"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/fencepost/fencepost/store/internal/cloud"
)

const hintCredentials = "set AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, or log in: az login, a managed identity, AZURE_CLIENT_ID and the rest"

// tokens marks the errors of getting a token, so that they can be told from an answer of
// the store. Azure's library reads some files once, so it may look for credentials again.
type tokens struct {
	find  func() (azcore.TokenCredential, error)
	login cloud.Login
	now   atomic.Pointer[azcore.TokenCredential]
	last  atomic.Pointer[given]
}

// given is a token, and what was asked for.
type given struct {
	token   string
	options policy.TokenRequestOptions
}

func newTokens(find func() (azcore.TokenCredential, error)) (*tokens, error) {
	t := &tokens{find: find, login: cloud.Login{Driver: "azurestore"}}
	now, err := find()
	if err != nil {
		return nil, t.login.Note(err)
	}
	t.now.Store(&now)
	return t, nil
}

func (t *tokens) GetToken(ctx context.Context, options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := (*t.now.Load()).GetToken(ctx, options)
	if err == nil {
		t.last.Store(&given{token.Token, options})
	}
	return token, t.login.Note(err)
}

// look looks for credentials again. It reports whether they give another token than before, and takes them.
func (t *tokens) look(ctx context.Context) bool {
	before := t.last.Load()
	if before == nil {
		return false
	}
	next, err := t.find()
	if err != nil {
		return false
	}
	token, err := next.GetToken(ctx, before.options)
	if err != nil || token.Token == before.token {
		return false
	}
	t.now.Store(&next)
	return true
}
